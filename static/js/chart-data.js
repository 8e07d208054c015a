// What a chart knows: points of its lines by rollout, when each came, abandoned tails, values that are no numbers.
// What was not measured is a gap; what was not due (metrics of a regeneration, between two of them) is not.
(function () {
  "use strict";
  const app = (window.Spadework = window.Spadework || {});
  const { num, interval } = app.format;
  const Z_95 = 1.96;
  const options = { smooth: 0, log: false, x: "rollout", hidden: new Set() }; // of all charts of the page
  const WORDS = { nan: "NaN ×", inf: "∞ ▲", "-inf": "−∞ ▼" };

  const keyOf = (line) => (line.run ? `${line.run}:${line.name}` : line.name);
  const bandOf = (line) => (line.run ? `${line.run}:${line.band}` : line.band);

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

  class ChartData {
    constructor(spec, every) {
      this.spec = spec;
      this.every = every;
      this.start = null; // Unix seconds of the first report, once times were fetched
      this.store = new Map();
      for (const key of this.keys()) this.store.set(key, { points: new Map(), times: new Map(), ghosts: [], marks: new Map(), counts: {}, total: 0, missing: 0, notPositive: 0 });
    }

    // Metric names to ask the server for.
    names() {
      return this.spec.series.flatMap((line) => (line.band ? [line.name, line.band] : [line.name]));
    }

    keys() {
      return this.spec.series.flatMap((line) => (line.band ? [keyOf(line), bandOf(line)] : [keyOf(line)]));
    }

    shown() {
      return this.spec.series.filter((line) => !options.hidden.has(line.run));
    }

    of(line) {
      return this.store.get(keyOf(line));
    }

    load(series, start) {
      this.start = start ?? null;
      for (const key of this.keys()) {
        const one = series[key];
        if (!one) continue;
        this.store.set(key, {
          points: new Map(one.x.map((x, index) => [x, one.y[index]])),
          times: new Map(one.t ? one.x.map((x, index) => [x, one.t[index]]) : []),
          ghosts: one.ghosts || [],
          marks: new Map(one.marks || []),
          counts: { ...one.not_finite },
          total: one.total || 0,
          missing: one.missing || 0,
          notPositive: one.not_positive || 0,
        });
      }
    }

    // Every point of a stretch that was thinned before; what is known of the rest stays.
    refine(series) {
      for (const key of this.keys()) {
        const one = this.store.get(key);
        series[key]?.x.forEach((x, index) => {
          one.points.set(x, series[key].y[index]);
          if (series[key].t) one.times.set(x, series[key].t[index]);
        });
      }
    }

    // True when the server left out points of some line.
    isThinned() {
      return this.keys().some((key) => this.store.get(key).total > this.store.get(key).points.size);
    }

    // A rollout that was just reported; true when it concerns this chart.
    add(rollout, values, notFinite, at) {
      let has = false;
      for (const key of this.keys()) {
        if (!(key in values)) continue;
        const one = this.store.get(key);
        const mark = notFinite?.[key];
        if (mark && !one.marks.has(rollout)) one.counts[mark] = (one.counts[mark] || 0) + 1;
        if (mark) one.marks.set(rollout, mark);
        if (one.points.has(rollout)) this.count(one, one.points.get(rollout), -1);
        this.count(one, values[key], 1);
        one.points.set(rollout, values[key]);
        if (this.start !== null && at) one.times.set(rollout, at - this.start);
        has = true;
      }
      return has;
    }

    // What the server counted before it thinned the line goes on with each point.
    count(one, value, by) {
      one.total += by;
      if (value === null) one.missing += by;
      else if (value <= 0) one.notPositive += by;
    }

    // Where a rollout stands on the axis; null when that is not known.
    x(one, rollout) {
      if (options.x !== "time") return rollout;
      return one.times.get(rollout) ?? (one.marks.has(rollout) ? this.near(one, rollout) : null);
    }

    // Marks of points that were thinned away stand at the time of the nearest rollout that is there.
    near(one, rollout) {
      let best = null;
      for (const [at, seconds] of one.times) if (best === null || Math.abs(at - rollout) < Math.abs(best[0] - rollout)) best = [at, seconds];
      return best && best[1];
    }

    byX(line) {
      const one = this.of(line);
      const every = line.every || this.every;
      const found = new Map();
      for (const [rollout, value] of one.points) {
        const x = this.x(one, rollout);
        if (x === null) continue;
        const isDue = !(line.bridge || (line.sparse && rollout % every !== 0));
        if (value !== null) found.set(x, value);
        else if (isDue || one.marks.has(rollout)) found.set(x, null);
      }
      return found;
    }

    ghost(line, ghost) {
      const xs = options.x === "time" ? ghost.t || [] : ghost.x;
      const found = new Map();
      xs.forEach((x, index) => {
        const value = ghost.y[index];
        if (x !== null && !(value === null && line.sparse)) found.set(x, value);
      });
      return found;
    }

    edges(line, values) {
      const one = this.of(line);
      const errors = this.store.get(bandOf(line)).points;
      const high = new Map();
      const low = new Map();
      for (const [rollout, value] of one.points) {
        const x = this.x(one, rollout);
        if (x === null || !values.has(x)) continue;
        const error = errors.get(rollout);
        const has = typeof value === "number" && typeof error === "number";
        high.set(x, has ? value + Z_95 * error : null);
        low.set(x, has ? value - Z_95 * error : null);
      }
      return { high, low };
    }

    // Columns in the order they are drawn: ghosts, high and low of the band, the raw line when smoothed, the line.
    columns() {
      const columns = [];
      for (const line of this.shown()) {
        const values = this.byX(line);
        for (const ghost of this.of(line).ghosts) columns.push({ line, kind: "ghost", values: this.ghost(line, ghost) });
        if (line.band) {
          const { high, low } = this.edges(line, values);
          columns.push({ line, kind: "high", values: high }, { line, kind: "low", values: low });
        }
        if (options.smooth) columns.push({ line, kind: "raw", values });
        columns.push({ line, kind: "line", values });
      }
      return columns;
    }

    // For uPlot: the common x, then the columns; and the marks to draw at the edges.
    table() {
      const columns = this.columns();
      const all = new Set();
      for (const { values } of columns) for (const x of values.keys()) all.add(x);
      const xs = [...all].sort((a, b) => a - b);
      const rows = columns.map(({ kind, values }) => {
        const read = xs.map((x) => {
          const value = values.get(x);
          return options.log && typeof value === "number" && value <= 0 ? null : value;
        });
        return kind === "line" ? smoothed(read, options.smooth) : read;
      });
      return { columns, data: [xs, ...rows], marks: this.marks() };
    }

    marks() {
      const marks = [];
      for (const line of this.shown()) {
        const one = this.of(line);
        for (const [rollout, kind] of one.marks) {
          const x = this.x(one, rollout);
          if (x !== null) marks.push({ x, kind, line });
        }
        if (options.log) for (const [x, value] of this.byX(line)) if (typeof value === "number" && value <= 0) marks.push({ x, kind: "below", line });
      }
      return marks;
    }

    rollouts() {
      return Math.max(0, ...this.spec.series.map((line) => this.of(line).points.size));
    }

    // Rollouts of the longest line, those that were thinned away too.
    reported() {
      return Math.max(0, ...this.spec.series.map((line) => this.of(line).total));
    }

    newest(line) {
      let best = null;
      for (const [rollout, value] of this.of(line).points) if (value !== null && (best === null || rollout > best)) best = rollout;
      return best;
    }

    text(line, rollout) {
      const one = this.of(line);
      const mark = one.marks.get(rollout);
      if (mark) return num(mark === "nan" ? NaN : mark === "inf" ? Infinity : -Infinity);
      const value = one.points.get(rollout);
      if (value === undefined || value === null) return "–";
      const error = line.band ? this.store.get(bandOf(line)).points.get(rollout) : null;
      return typeof error === "number" ? interval(value, Z_95 * error) : num(value);
    }

    // The value of a line where the pointer is. By time each run has instants of its own: the newest one up to there.
    textAt(line, x) {
      if (options.x !== "time") return this.text(line, x);
      const one = this.of(line);
      let best = null;
      for (const [rollout, seconds] of one.times) if (seconds !== null && seconds <= x && (best === null || seconds > one.times.get(best))) best = rollout;
      return best === null ? "–" : this.text(line, best);
    }

    summary(line) {
      const newest = this.newest(line);
      if (newest === null) return `${line.label}: not measured`;
      const one = this.of(line);
      let [least, most] = [Infinity, -Infinity]; // of every stretch the server sends the lowest and the highest point
      for (const value of one.points.values()) {
        if (value === null) continue;
        least = Math.min(least, value);
        most = Math.max(most, value);
      }
      return `${line.label}: ${this.text(line, newest)} in rollout ${newest}, between ${num(least)} and ${num(most)} in ${one.total - one.missing} rollouts`;
    }

    // In how many of the rollouts that a value was due in there was none, and in how many it was due; thinned away or not.
    unmeasured(line) {
      const one = this.of(line);
      const marked = Object.values(one.counts).reduce((sum, count) => sum + count, 0);
      if (!line.sparse) return [one.missing - marked, one.total];
      const every = line.every || this.every;
      const rollouts = [...one.points.keys()];
      if (one.points.size < one.total) {
        // The first and the last are always there; between them one in `every` was due.
        const [first, last] = [Math.min(...rollouts), Math.max(...rollouts)];
        const due = Math.floor(last / every) - Math.ceil(first / every) + 1;
        return [Math.max(0, due - marked - (one.total - one.missing)), due];
      }
      const due = rollouts.filter((rollout) => rollout % every === 0);
      return [due.filter((rollout) => one.points.get(rollout) === null && !one.marks.has(rollout)).length, due.length];
    }

    note() {
      const notes = [];
      const isAlone = this.spec.series.length === 1;
      for (const line of this.shown()) {
        const who = isAlone ? "" : `${line.label}: `;
        const one = this.of(line);
        const [missing, due] = this.unmeasured(line);
        for (const [what, count] of Object.entries(one.counts)) if (count) notes.push(`${who}${count} of ${one.total} ${WORDS[what]}`);
        if (missing && !line.bridge && !line.run && !line.quiet) notes.push(`${who}${missing} of ${due} not measured`);
        if (options.log && one.notPositive) notes.push(`${who}${one.notPositive} not above 0 ▽`);
      }
      if (this.shown().some((line) => this.of(line).ghosts.length)) notes.push("dotted: older attempt");
      return notes.join(" · ");
    }
  }

  app.ChartData = ChartData;
  app.chartOptions = options;
})();
