// Draws a chart (uPlot): lines with their bands and ghosts, marks at the edges for what is no number, legend, picture of it.
(function () {
  "use strict";
  const app = window.Spadework;
  const { num, duration } = app.format;
  const options = app.chartOptions;
  const FEW_POINTS = 60;
  const REDRAW_MS = 100;
  const MARK_PX = 4;
  const TIME_STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];
  const ROLLOUT_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000];

  const withAlpha = (color, alpha) => color.replace(/^rgb\(([^)]+)\)$/, `rgb($1 / ${alpha})`).replace(/, /g, " ");

  // Short enough for the axis: 0.25, −1e−5, 2.00k.
  function tickText(tick) {
    if (tick === null) return "";
    if (tick === 0) return "0";
    const short = +tick.toPrecision(3);
    if (Math.abs(short) >= 1) return num(short, Number.isInteger(short));
    return (Math.abs(short) < 0.001 ? short.toExponential() : String(short)).replaceAll("-", "−");
  }

  function timeText(seconds) {
    if (seconds < 60) return `${+seconds.toFixed(1)} s`;
    if (seconds < 3600) return `${+(seconds / 60).toFixed(1)} min`;
    return seconds < 48 * 3600 ? `${+(seconds / 3600).toFixed(1)} h` : `${+(seconds / 86400).toFixed(1)} d`;
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.spec = JSON.parse(figure.dataset.spec ?? document.getElementById(figure.dataset.chart).textContent);
      this.model = new app.ChartData(this.spec, Number(figure.dataset.every) || 1);
      this.plotArea = figure.querySelector("[data-plot]");
      this.legend = figure.querySelector("[data-legend]");
      this.note = figure.querySelector("[data-note]");
      this.plot = null;
      this.table = null;
      this.isZoomed = false;
      this.isLoaded = false;
      this.buildLegend();
      this.buildActs();
      new ResizeObserver(() => this.resize()).observe(this.plotArea);
    }

    load(series, start) {
      this.model.load(series, start);
      this.isLoaded = true;
      this.rebuild();
    }

    add(rollout, values, notFinite, at) {
      if (this.model.add(rollout, values, notFinite, at) && this.isLoaded) this.soon();
    }

    soon() {
      if (this.timer) return;
      this.timer = setTimeout(() => {
        this.timer = 0;
        if (!this.plot) return this.rebuild();
        this.table = this.model.table();
        this.plot.setData(this.table.data, !this.isZoomed);
        if (this.isZoomed) this.plot.redraw(true, false);
        return this.describe();
      }, REDRAW_MS);
    }

    series(color) {
      const few = (plot, index) => plot.data[index].reduce((count, value) => count + (typeof value === "number" ? 1 : 0), 0) <= FEW_POINTS;
      return this.table.columns.map(({ line, kind }) => {
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
      this.table.columns.forEach(({ line, kind }, index) => {
        if (kind === "high") bands.push({ series: [index + 1, index + 2], fill: withAlpha(color(line.color), 0.13) });
      });
      return bands;
    }

    // Draws afresh; what was zoomed stays zoomed.
    rebuild() {
      const zoom = this.isZoomed && this.plot ? { min: this.plot.scales.x.min, max: this.plot.scales.x.max } : null;
      this.plot?.destroy();
      this.plot = null;
      this.plotArea.querySelector(".chart-empty")?.remove();
      this.table = this.model.table();
      const palette = new Map();
      const color = (token) => palette.get(token) || palette.set(token, app.color(token)).get(token);
      this.paintLegend(color);
      const hasNumbers = this.table.data.slice(1).some((column) => column.some((value) => typeof value === "number"));
      if (!hasNumbers) return this.showEmpty();
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
          setSelect: [(plot) => this.zoomed(plot)],
          drawAxes: [(plot) => this.drawZero(plot, color)],
          draw: [(plot) => this.drawMarks(plot, color)],
        },
      }, this.table.data, this.plotArea);
      this.plot.over.addEventListener("dblclick", () => { this.isZoomed = false; });
      if (zoom) this.plot.setScale("x", zoom);
      this.describe();
      return undefined;
    }

    // Part of a thinned line was chosen: its own points are fetched, so that what is read there is what was measured.
    zoomed(plot) {
      if (!(plot.select.width > 0)) return;
      this.isZoomed = true;
      if (options.x !== "rollout" || !this.model.isThinned()) return;
      const [from, to] = [0, plot.select.width].map((at) => plot.posToVal(plot.select.left + at, "x"));
      app.charts.refine(this, Math.floor(from), Math.ceil(to));
    }

    refine(series) {
      this.model.refine(series);
      this.soon();
    }

    xRange(low, high, plot) {
      if (this.isZoomed && low !== null) return [low, high];
      // From our own data: with a single point uPlot would guess a range of a hundred.
      const all = plot.data?.[0] || this.table.data[0];
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
      const byTime = options.x === "time";
      const xText = byTime ? timeText : (tick) => (Number.isInteger(tick) ? String(tick) : "");
      return [
        { ...shared, size: 24, gap: 4, grid: { show: false }, space: byTime ? 64 : 50, incrs: byTime ? TIME_STEPS : ROLLOUT_STEPS, values: (plot, ticks) => ticks.map(xText) },
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

    // NaN: a cross at the bottom; infinite: a filled triangle at the edge it went through; not above 0 on a log axis: an open one.
    // Marks that fall on the same spot are drawn once, so a long stretch costs no more than the width of the chart.
    drawMarks(plot, color) {
      const { ctx, bbox } = plot;
      const size = MARK_PX * (window.devicePixelRatio || 1);
      const drawn = new Set();
      ctx.save();
      ctx.lineWidth = size / 3;
      for (const { x, kind, line } of this.table.marks) {
        const at = Math.round(plot.valToPos(x, "x", true) / size) * size;
        if (at < bbox.left - size || at > bbox.left + bbox.width + size || drawn.has(`${at} ${kind} ${line.color}`)) continue;
        drawn.add(`${at} ${kind} ${line.color}`);
        ctx.strokeStyle = ctx.fillStyle = color(line.color);
        const isTop = kind === "inf";
        const edge = isTop ? bbox.top : bbox.top + bbox.height;
        const inside = edge + (isTop ? 1 : -1) * 2 * size;
        ctx.beginPath();
        if (kind === "nan") {
          ctx.moveTo(at - size, edge - 2 * size);
          ctx.lineTo(at + size, edge);
          ctx.moveTo(at + size, edge - 2 * size);
          ctx.lineTo(at - size, edge);
          ctx.stroke();
          continue;
        }
        ctx.moveTo(at - size, inside);
        ctx.lineTo(at + size, inside);
        ctx.lineTo(at, edge);
        ctx.closePath();
        if (kind === "below") ctx.stroke();
        else ctx.fill();
      }
      ctx.restore();
    }

    showEmpty() {
      const empty = document.createElement("div");
      empty.className = "chart-empty";
      const rollouts = this.model.reported();
      const marks = this.table.marks.length;
      if (!this.model.shown().length) empty.textContent = "every run is hidden";
      else if (marks) empty.textContent = `no value that can be drawn in ${rollouts} rollout${rollouts === 1 ? "" : "s"}`;
      else if (rollouts) empty.textContent = `not measured in ${rollouts} rollout${rollouts === 1 ? "" : "s"}`;
      else empty.textContent = this.spec.series.some((line) => line.run) ? "not measured" : "first point after the first rollout";
      this.plotArea.append(empty);
      this.describe();
    }

    buildLegend() {
      this.legend.replaceChildren();
      for (const line of this.spec.series) {
        const item = document.createElement("span");
        item.className = "legend-item";
        item.dataset.line = line.name;
        if (line.run) item.dataset.run = line.run;
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

    paintLegend(color) {
      this.spec.series.forEach((line, index) => {
        const item = this.legend.children[index];
        item.querySelector(".key").style.color = color(line.color);
        item.hidden = options.hidden.has(line.run);
      });
    }

    hover(index) {
      if (index === null || index === undefined) return this.describe();
      const x = this.plot.data[0][index];
      this.spec.series.forEach((line, at) => {
        this.legend.children[at].querySelector("strong").textContent = this.model.textAt(line, x);
      });
      this.note.textContent = options.x === "time" ? `after ${duration(x)}` : `rollout ${x}`;
      return undefined;
    }

    // Legend, note and the text that stands for the picture.
    describe() {
      this.spec.series.forEach((line, at) => {
        const newest = this.model.newest(line);
        this.legend.children[at].querySelector("strong").textContent = newest === null ? "–" : this.model.text(line, newest);
      });
      const parts = this.model.shown().map((line) => this.model.summary(line));
      const note = this.model.note();
      this.plotArea.setAttribute("aria-label", `${this.spec.title}. ${[...parts, ...(note ? [note] : [])].join("; ")}`);
      this.note.textContent = note;
      this.note.title = note;
      this.figure.dataset.points = String(this.model.rollouts());
    }

    buildActs() {
      this.figure.querySelector("[data-png]")?.addEventListener("click", () => this.savePicture());
      const csv = this.figure.querySelector("[data-csv]");
      if (!csv) return;
      const url = new URL(csv.href);
      for (const name of new Set(this.model.names())) url.searchParams.append("name", name);
      csv.href = url.href;
    }

    // The picture with title and legend, on the page's ground.
    savePicture() {
      if (!this.plot) return;
      const drawn = this.plot.ctx.canvas;
      const scale = window.devicePixelRatio || 1;
      const head = 46 * scale;
      const canvas = document.createElement("canvas");
      canvas.width = drawn.width;
      canvas.height = drawn.height + head;
      const ctx = canvas.getContext("2d");
      ctx.fillStyle = app.color("--bg");
      ctx.fillRect(0, 0, canvas.width, canvas.height);
      ctx.fillStyle = app.color("--ink");
      ctx.font = `600 ${13 * scale}px Inter, system-ui, sans-serif`;
      ctx.fillText(this.spec.title, 8 * scale, 18 * scale);
      ctx.font = `${11 * scale}px Inter, system-ui, sans-serif`;
      let left = 8 * scale;
      for (const line of this.model.shown()) {
        ctx.fillStyle = app.color(line.color);
        ctx.fillRect(left, 32 * scale, 10 * scale, 2 * scale);
        ctx.fillStyle = app.color("--ink-2");
        ctx.fillText(line.label, left + 14 * scale, 37 * scale);
        left += 30 * scale + ctx.measureText(line.label).width;
      }
      ctx.drawImage(drawn, 0, head);
      canvas.toBlob((blob) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = `${this.spec.title.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").toLowerCase() || "chart"}.png`;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      });
    }

    resize() {
      if (!this.plot) return;
      const box = this.plotArea.getBoundingClientRect();
      if (box.width > 0) this.plot.setSize({ width: Math.max(160, Math.floor(box.width)), height: Math.max(120, Math.floor(box.height)) });
    }
  }

  app.Chart = Chart;
})();
