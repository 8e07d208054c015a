// Charts of metrics over rollouts (uPlot). Points come from the series endpoint, then one by one from the socket.
// What is not a number is a gap; what was not due (metrics of a regeneration, between two of them) is not.
(function () {
  "use strict";
  const app = (window.Spadework = window.Spadework || {});
  const { num, interval } = app.format;
  const Z_95 = 1.96;
  const FEW_POINTS = 60;
  const REDRAW_MS = 100;
  const options = { smooth: 0, log: false }; // of all charts of the page

  const withAlpha = (color, alpha) => color.replace(/^rgb\(([^)]+)\)$/, `rgb($1 / ${alpha})`).replace(/, /g, " ");

  // Short enough for the axis: 0.25, −1e−5, 2.00k.
  function tickText(tick) {
    if (tick === null) return "";
    if (tick === 0) return "0";
    const short = +tick.toPrecision(3);
    if (Math.abs(short) >= 1) return num(short, Number.isInteger(short));
    return (Math.abs(short) < 0.001 ? short.toExponential() : String(short)).replaceAll("-", "−");
  }

  // Exponential moving average without the bias of its start; gaps stay gaps and do not enter it.
  function smoothed(values, weight) {
    if (!weight) return values;
    let mean = 0;
    let seen = 0;
    return values.map((value) => {
      if (value === null || value === undefined) return value;
      mean = mean * weight + value * (1 - weight);
      seen += 1;
      return mean / (1 - weight ** seen);
    });
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.spec = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
      this.every = Number(figure.dataset.every) || 1;
      this.plotArea = figure.querySelector("[data-plot]");
      this.legend = figure.querySelector("[data-legend]");
      this.note = figure.querySelector("[data-note]");
      this.points = new Map(this.names().map((name) => [name, new Map()]));
      this.ghosts = new Map();
      this.missing = new Map();
      this.plot = null;
      this.isZoomed = false;
      this.isLoaded = false;
      this.buildLegend();
      new ResizeObserver(() => this.resize()).observe(this.plotArea);
    }

    names() {
      return this.spec.series.flatMap((line) => (line.band ? [line.name, line.band] : [line.name]));
    }

    load(series) {
      for (const name of this.names()) {
        const one = series[name];
        if (!one) continue;
        this.points.set(name, new Map(one.x.map((x, index) => [x, one.y[index]])));
        this.ghosts.set(name, one.ghosts);
        this.missing.set(name, one.missing);
      }
      this.isLoaded = true;
      this.rebuild();
    }

    add(rollout, values) {
      let has = false;
      for (const name of this.names()) {
        if (!(name in values)) continue;
        this.points.get(name).set(rollout, values[name]);
        has = true;
      }
      if (has && this.isLoaded) this.soon();
    }

    soon() {
      if (this.timer) return;
      this.timer = setTimeout(() => {
        this.timer = 0;
        if (!this.plot) this.rebuild();
        else {
          this.plot.setData(this.data(), !this.isZoomed);
          if (this.isZoomed) this.plot.redraw(true, false);
          this.describe();
        }
      }, REDRAW_MS);
    }

    // Columns: x, then per line [raw if smoothed] value [low, high of the band] and its ghosts.
    columns() {
      const columns = [];
      for (const line of this.spec.series) {
        const values = this.points.get(line.name);
        const read = (x) => {
          if (!values.has(x)) return undefined;
          const value = values.get(x);
          if (value !== null) return value;
          return line.bridge || (line.sparse && x % this.every !== 0) ? undefined : null;
        };
        for (const ghost of this.ghosts.get(line.name) || []) {
          const tail = new Map(ghost.x.map((x, index) => [x, ghost.y[index]]));
          columns.push({ line, kind: "ghost", read: (x) => (tail.has(x) ? tail.get(x) ?? (line.sparse ? undefined : null) : undefined) });
        }
        if (line.band) {
          const errors = this.points.get(line.band);
          const edge = (sign) => (x) => {
            const value = read(x);
            const error = errors.get(x);
            if (value === undefined) return undefined;
            return typeof value === "number" && typeof error === "number" ? value + sign * Z_95 * error : null;
          };
          columns.push({ line, kind: "high", read: edge(1) }, { line, kind: "low", read: edge(-1) });
        }
        if (options.smooth) columns.push({ line, kind: "raw", read });
        columns.push({ line, kind: "line", read });
      }
      return columns;
    }

    xs() {
      const all = new Set();
      for (const values of this.points.values()) for (const x of values.keys()) all.add(x);
      for (const ghosts of this.ghosts.values()) for (const ghost of ghosts) for (const x of ghost.x) all.add(x);
      return [...all].sort((a, b) => a - b);
    }

    data() {
      const xs = this.xs();
      const cols = this.columns().map((column) => {
        const values = xs.map(column.read).map((value) => (options.log && typeof value === "number" && value <= 0 ? null : value));
        return column.kind === "line" ? smoothed(values, options.smooth) : values;
      });
      return [xs, ...cols];
    }

    series(color) {
      const few = (plot, index) => plot.data[index].reduce((count, value) => count + (typeof value === "number" ? 1 : 0), 0) <= FEW_POINTS;
      return this.columns().map(({ line, kind }) => {
        const stroke = color(line.color);
        const dash = line.dash ? [6, 3] : undefined;
        if (kind === "ghost") return { stroke, width: 1, dash: [2, 3], alpha: 0.45, points: { show: false } };
        if (kind === "high" || kind === "low") return { stroke: "transparent", width: 0, points: { show: false } };
        if (kind === "raw") return { stroke, width: 1, alpha: 0.25, points: { show: false } };
        return { stroke, width: 1.75, dash, points: { show: few, size: 4.5, fill: stroke, stroke, width: 0 } };
      });
    }

    bands(color) {
      const bands = [];
      this.columns().forEach(({ line, kind }, index) => {
        if (kind === "high") bands.push({ series: [index + 1, index + 2], fill: withAlpha(color(line.color), 0.13) });
      });
      return bands;
    }

    rebuild() {
      this.plot?.destroy();
      this.plot = null;
      this.plotArea.querySelector(".chart-empty")?.remove();
      const data = this.data();
      const hasNumbers = data.slice(1).some((column) => column.some((value) => typeof value === "number"));
      if (!hasNumbers) return this.showEmpty(data[0].length);
      const palette = new Map();
      const color = (token) => palette.get(token) || palette.set(token, app.color(token)).get(token);
      this.legend.querySelectorAll("[data-line]").forEach((item, index) => {
        item.querySelector(".key").style.color = color(this.spec.series[index].color);
      });
      const box = this.plotArea.getBoundingClientRect();
      this.plot = new uPlot({
        width: Math.max(160, Math.floor(box.width)),
        height: Math.max(120, Math.floor(box.height)),
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, points: { size: 7 }, sync: { key: "rollouts" }, drag: { x: true, y: false } },
        scales: { x: { time: false, range: (plot, low, high) => this.xRange(low, high, plot) }, y: this.yScale() },
        axes: this.axes(color),
        series: [{}, ...this.series(color)],
        bands: this.bands(color),
        hooks: {
          setCursor: [(plot) => this.hover(plot.cursor.idx)],
          setSelect: [(plot) => { if (plot.select.width > 0) this.isZoomed = true; }],
          drawAxes: [(plot) => this.drawZero(plot, color)],
        },
      }, data, this.plotArea);
      this.plot.over.addEventListener("dblclick", () => { this.isZoomed = false; });
      this.describe();
      return undefined;
    }

    xRange(low, high, plot) {
      if (this.isZoomed && low !== null) return [low, high];
      // From our own data: with a single point uPlot would guess a range of a hundred.
      const all = plot.data?.[0] || this.xs();
      const first = all[0] ?? 0;
      return [first, Math.max(all[all.length - 1] ?? 0, first + 4)];
    }

    yScale() {
      if (options.log) return { distr: 3 };
      const { low, high } = this.spec;
      if (typeof low === "number" && typeof high === "number") return { range: [low, high] };
      return {
        range: (plot, least, most) => {
          if (least === null) return [0, 1];
          const from = typeof low === "number" ? low : least;
          const pad = (most - from || Math.abs(most) || 1) * 0.1;
          return [typeof low === "number" ? low : least - pad, most + pad];
        },
      };
    }

    axes(color) {
      const font = "11px Inter, system-ui, sans-serif";
      const grid = { stroke: color("--line"), width: 1 };
      const shared = { stroke: color("--ink-3"), font, grid, ticks: { show: false } };
      return [
        { ...shared, size: 24, gap: 4, grid: { show: false }, space: 50, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000], values: (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : "")) },
        { ...shared, size: 50, gap: 6, space: 32, values: (plot, ticks) => ticks.map(tickText) },
      ];
    }

    drawZero(plot, color) {
      if (!this.spec.zero || options.log) return;
      const { min, max } = plot.scales.y;
      if (!(min < 0 && max > 0)) return;
      const y = Math.round(plot.valToPos(0, "y", true)) + 0.5;
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = color("--line-control");
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.restore();
    }

    showEmpty(rollouts) {
      const empty = document.createElement("div");
      empty.className = "chart-empty";
      empty.textContent = rollouts ? `not measured in ${rollouts} rollout${rollouts === 1 ? "" : "s"}` : "first point after the first rollout";
      this.plotArea.append(empty);
      this.describe();
    }

    buildLegend() {
      this.legend.replaceChildren();
      for (const line of this.spec.series) {
        const item = document.createElement("span");
        item.className = "legend-item";
        item.dataset.line = line.name;
        const key = document.createElement("span");
        key.className = line.dash ? "key dash" : "key";
        key.style.color = app.color(line.color);
        const label = document.createElement("span");
        label.textContent = line.label;
        const value = document.createElement("strong");
        value.textContent = "–";
        item.append(key, label, value);
        this.legend.append(item);
      }
    }

    newest(line) {
      const values = this.points.get(line.name);
      let best = null;
      for (const [x, value] of values) if (value !== null && (best === null || x > best)) best = x;
      return best;
    }

    valueText(line, rollout) {
      const value = this.points.get(line.name).get(rollout);
      if (value === undefined || value === null) return "–";
      const error = line.band ? this.points.get(line.band).get(rollout) : null;
      return typeof error === "number" ? interval(value, Z_95 * error) : num(value);
    }

    hover(index) {
      if (index === null || index === undefined) return this.describe();
      const rollout = this.plot.data[0][index];
      this.spec.series.forEach((line, at) => {
        this.legend.children[at].querySelector("strong").textContent = this.valueText(line, rollout);
      });
      this.note.textContent = `rollout ${rollout}`;
      return undefined;
    }

    // Legend, note and the text that stands for the picture.
    describe() {
      const parts = [];
      this.spec.series.forEach((line, at) => {
        const newest = this.newest(line);
        const text = newest === null ? "–" : this.valueText(line, newest);
        this.legend.children[at].querySelector("strong").textContent = text;
        const numbers = [...this.points.get(line.name).values()].filter((value) => value !== null);
        parts.push(newest === null ? `${line.label}: not measured` : `${line.label}: ${text} in rollout ${newest}, between ${num(Math.min(...numbers))} and ${num(Math.max(...numbers))} in ${numbers.length} rollouts`);
      });
      this.plotArea.setAttribute("aria-label", `${this.spec.title}. ${parts.join("; ")}`);
      this.note.textContent = this.noteText();
      this.figure.dataset.points = String(Math.max(0, ...this.spec.series.map((line) => this.points.get(line.name).size)));
    }

    noteText() {
      const notes = [];
      for (const line of this.spec.series) {
        let missing = 0;
        let due = 0;
        for (const [x, value] of this.points.get(line.name)) {
          if (line.sparse && x % this.every !== 0) continue;
          due += 1;
          if (value === null) missing += 1;
        }
        if (missing && !line.bridge) notes.push(`${line.label}: ${missing} of ${due} not measured`);
        const attempts = (this.ghosts.get(line.name) || []).length;
        if (attempts && line === this.spec.series[0]) notes.push("dotted: older attempt");
        if (options.log) {
          const below = [...this.points.get(line.name).values()].filter((value) => typeof value === "number" && value <= 0).length;
          if (below) notes.push(`${line.label}: ${below} not above 0, not on a log axis`);
        }
      }
      return notes.join(" · ");
    }

    resize() {
      if (!this.plot) return;
      const box = this.plotArea.getBoundingClientRect();
      if (box.width > 0) this.plot.setSize({ width: Math.max(160, Math.floor(box.width)), height: Math.max(120, Math.floor(box.height)) });
    }
  }

  app.Chart = Chart;
  app.chartOptions = options;
})();
