// Draws a graph from its JSON: laid out by dagre, every node a link that the keyboard reaches, moved by dragging and by its buttons.
(function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const [WIDTH, LINE, PAD] = [172, 15, 8];
  const [KIND_CHARACTERS, TITLE_CHARACTERS, DETAIL_CHARACTERS] = [28, 24, 29];
  const ZOOM = 1.25;
  const MOST_ZOOM = 2;

  function svg(name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const short = (text, characters) => (text.length > characters ? `${text.slice(0, characters - 1)}…` : text);

  // Two lines of at most so many characters, broken between words.
  function lines(text, characters) {
    if (text.length <= characters) return text ? [text] : [];
    const at = text.lastIndexOf(" ", characters);
    const cut = at > characters / 2 ? at : characters;
    const rest = text.slice(cut).trim();
    return [text.slice(0, cut), short(rest, characters)];
  }

  class GraphView {
    constructor(box) {
      this.box = box;
      this.data = JSON.parse(document.getElementById(box.dataset.graph).textContent);
      this.canvas = box.querySelector("[data-graph-canvas]");
      this.lay();
      this.draw();
      this.bind();
      this.fit();
    }

    lay() {
      const graph = new dagre.graphlib.Graph({ multigraph: false });
      graph.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 30, marginx: 12, marginy: 12 });
      graph.setDefaultEdgeLabel(() => ({}));
      for (const node of this.data.nodes) {
        node.rows = lines(node.detail, DETAIL_CHARACTERS);
        graph.setNode(node.id, { width: WIDTH, height: 2 * PAD + LINE * (2 + node.rows.length) });
      }
      for (const edge of this.data.edges) graph.setEdge(edge.from, edge.to, { width: edge.word.length * 6, height: edge.word ? 12 : 0, labelpos: "c" });
      dagre.layout(graph);
      this.graph = graph;
      this.size = { width: graph.graph().width, height: graph.graph().height };
    }

    draw() {
      this.root = svg("svg", { class: "graph-svg", role: "group", "aria-label": this.box.dataset.label });
      const defs = svg("defs");
      const marker = svg("marker", { id: "graph-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
      marker.append(svg("path", { d: "M0 0.5 7.5 4 0 7.5Z", class: "graph-arrow" }));
      defs.append(marker);
      this.root.append(defs);
      for (const edge of this.data.edges) this.root.append(...this.edge(edge));
      for (const node of this.data.nodes) this.root.append(this.node(node));
      this.canvas.replaceChildren(this.root);
    }

    edge(edge) {
      const { points, x, y } = this.graph.edge(edge.from, edge.to);
      const [first, ...rest] = points;
      let path = `M${first.x} ${first.y}`;
      rest.forEach((point, index) => {
        const next = rest[index + 1];
        path += next ? `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}` : `L${point.x} ${point.y}`;
      });
      const line = svg("path", { d: path, class: "graph-edge", "marker-end": "url(#graph-arrow)" });
      return edge.word ? [line, svg("text", { x, y: y - 3, class: "graph-word" }, edge.word)] : [line];
    }

    node(node) {
      const { x, y, width, height } = this.graph.node(node.id);
      const outer = node.url ? svg("a", { href: node.url }) : svg("g");
      const said = [node.kind, node.title, node.detail].filter(Boolean).join(", ");
      outer.setAttribute("class", `graph-node ${node.tone}`);
      outer.setAttribute("aria-label", said);
      if (!node.url) outer.setAttribute("role", "img");
      outer.dataset.node = node.id;
      const [left, top] = [x - width / 2, y - height / 2];
      outer.append(
        svg("title", {}, said),
        svg("rect", { x: left, y: top, width, height, rx: 5 }),
        svg("text", { x: left + PAD, y: top + PAD + 10, class: "graph-kind" }, short(node.kind, KIND_CHARACTERS)),
        svg("text", { x: left + PAD, y: top + PAD + LINE + 11, class: "graph-title" }, short(node.title, TITLE_CHARACTERS)),
        ...node.rows.map((row, index) => svg("text", { x: left + PAD, y: top + PAD + LINE * (index + 2) + 10, class: "graph-detail" }, row)),
      );
      return outer;
    }

    show() {
      const { x, y, width, height } = this.view;
      this.root.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
    }

    // All of it, but never larger than life; a graph too wide to be read begins at the subject of the page.
    fit() {
      const box = this.canvas.getBoundingClientRect();
      const scale = Math.max(this.size.width / box.width, this.size.height / box.height, 1);
      this.view = { width: box.width * scale, height: box.height * scale };
      this.view.x = (this.size.width - this.view.width) / 2;
      this.view.y = (this.size.height - this.view.height) / 2;
      this.show();
    }

    start() {
      const box = this.canvas.getBoundingClientRect();
      if (this.size.width <= box.width * 1.6) return;
      const subject = this.data.nodes.find((node) => node.tone === "mark");
      this.view = { x: 0, y: 0, width: box.width * 1.15, height: box.height * 1.15 };
      if (subject) this.centre(subject.id);
    }

    centre(id) {
      const node = this.graph.node(id);
      this.view.x = node.x - this.view.width / 2;
      this.view.y = node.y - this.view.height / 2;
      this.show();
    }

    zoom(factor, at) {
      const box = this.canvas.getBoundingClientRect();
      const width = Math.min(Math.max(this.view.width / factor, box.width / MOST_ZOOM), Math.max(this.size.width * 2, box.width));
      const share = at || { x: 0.5, y: 0.5 };
      const height = width * (box.height / box.width);
      this.view.x += (this.view.width - width) * share.x;
      this.view.y += (this.view.height - height) * share.y;
      this.view.width = width;
      this.view.height = height;
      this.show();
    }

    bind() {
      const act = { in: () => this.zoom(ZOOM), out: () => this.zoom(1 / ZOOM), fit: () => this.fit() };
      for (const button of this.box.querySelectorAll("[data-graph-act]")) button.addEventListener("click", act[button.dataset.graphAct]);
      let from = null;
      this.canvas.addEventListener("pointerdown", (event) => {
        if (event.button === 0) from = { x: event.clientX, y: event.clientY, view: { ...this.view }, isMoved: false };
      });
      window.addEventListener("pointermove", (event) => {
        if (!from) return;
        const scale = this.view.width / this.canvas.getBoundingClientRect().width;
        const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
        from.isMoved = from.isMoved || Math.hypot(dx, dy) > 4;
        if (!from.isMoved) return;
        this.view.x = from.view.x - dx * scale;
        this.view.y = from.view.y - dy * scale;
        this.show();
      });
      window.addEventListener("pointerup", () => {
        this.wasMoved = Boolean(from?.isMoved);
        from = null;
        setTimeout(() => { this.wasMoved = false; });
      });
      this.canvas.addEventListener("click", (event) => { if (this.wasMoved) event.preventDefault(); }, { capture: true });
      this.canvas.addEventListener("dragstart", (event) => event.preventDefault());
      this.canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the page scrolls; with Ctrl the graph grows
        event.preventDefault();
        const box = this.canvas.getBoundingClientRect();
        this.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height });
      }, { passive: false });
      // What the keyboard reaches comes into view.
      this.canvas.addEventListener("focusin", (event) => {
        const id = event.target.closest?.("[data-node]")?.dataset.node;
        if (!id || !event.target.matches(":focus-visible")) return;
        const node = this.graph.node(id);
        const { x, y, width, height } = this.view;
        if (node.x - WIDTH / 2 < x || node.x + WIDTH / 2 > x + width || node.y < y || node.y > y + height) this.centre(id);
      });
    }
  }

  for (const box of document.querySelectorAll("[data-graph]")) {
    const view = new GraphView(box);
    view.start();
    box.dataset.nodes = String(view.data.nodes.length);
  }
})();
