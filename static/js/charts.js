// The charts of a page: fetched when they come into view, drawn again with the theme, smoothed and scaled by the page's tools.
(function () {
  "use strict";
  const app = window.Spadework;
  const options = app.chartOptions;
  const charts = [];

  // Charts load when they come into view, and those that come together in one request.
  let wanted = new Set();
  let timer = 0;
  function want(chart) {
    wanted.add(chart);
    if (!timer) timer = setTimeout(fetchWanted, 30);
  }
  async function fetchWanted() {
    timer = 0;
    const batch = [...wanted].slice(0, 20);
    for (const chart of batch) wanted.delete(chart);
    if (wanted.size) timer = setTimeout(fetchWanted, 0);
    for (const url of new Set(batch.map((chart) => chart.figure.dataset.url))) fetchFrom(url, batch.filter((chart) => chart.figure.dataset.url === url));
  }
  async function fetchFrom(address, group) {
    const url = new URL(address, location.href);
    for (const name of new Set(group.flatMap((chart) => chart.model.names()))) url.searchParams.append("name", name);
    url.searchParams.set("points", String(Math.max(400, 2 * Math.ceil(group[0].plotArea.getBoundingClientRect().width))));
    const x = options.x;
    if (x === "time") url.searchParams.set("times", "1");
    try {
      const answer = await fetch(url, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const body = await answer.json();
      if (x !== options.x) return; // asked for another axis meanwhile; that answer is on its way
      for (const chart of group) chart.load(body.series, body.start);
    } catch (error) {
      for (const chart of group) chart.note.textContent = `the points could not be fetched (${error.message}); reload the page`;
    }
  }

  // The points of one chart between two rollouts; as many as may be asked for, so a short stretch comes whole.
  async function refine(chart, from, to) {
    const url = new URL(chart.figure.dataset.url, location.href);
    for (const name of new Set(chart.model.names())) url.searchParams.append("name", name);
    url.searchParams.set("points", "5000");
    url.searchParams.set("from", String(Math.max(0, from)));
    url.searchParams.set("to", String(Math.max(0, to)));
    const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch((error) => ({ ok: false, statusText: error.message }));
    if (answer.ok) chart.refine((await answer.json()).series);
    else chart.note.textContent = `the points of this stretch could not be fetched (${answer.statusText})`;
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      want(charts.find((chart) => chart.figure === entry.target));
    }
  }, { rootMargin: "200px" });

  function redraw() {
    for (const chart of charts) if (chart.isLoaded) chart.rebuild();
  }
  function reload() {
    for (const chart of charts) if (chart.isLoaded) want(chart);
  }

  // The tools of the page; what is chosen stays in the address.
  function setUpTools(tools) {
    const query = new URLSearchParams(location.search);
    const slider = tools.querySelector("[data-smooth]");
    const log = tools.querySelector("[data-log]");
    const x = tools.querySelector("[data-x]");
    const runs = [...document.querySelectorAll("[data-run-toggle]")];
    slider.value = query.get("smooth") || "0";
    log.checked = query.get("log") === "1";
    if (query.get("x") === "time") x.value = "time";
    const hidden = new Set((query.get("hide") || "").split(",").filter(Boolean));
    for (const box of runs) box.checked = !hidden.has(box.dataset.runToggle);
    const apply = () => {
      const isOtherX = options.x !== x.value;
      options.smooth = Number(slider.value);
      options.log = log.checked;
      options.x = x.value;
      options.hidden = new Set(runs.filter((box) => !box.checked).map((box) => box.dataset.runToggle));
      tools.querySelector("[data-smooth-value]").textContent = slider.value;
      const chosen = new URLSearchParams(location.search);
      for (const name of ["smooth", "log", "x", "hide"]) chosen.delete(name);
      if (options.smooth) chosen.set("smooth", slider.value);
      if (options.log) chosen.set("log", "1");
      if (options.x !== "rollout") chosen.set("x", options.x);
      if (options.hidden.size) chosen.set("hide", [...options.hidden].join(","));
      history.replaceState(null, "", chosen.size ? `?${chosen}` : location.pathname);
      if (isOtherX) {
        for (const chart of charts) chart.isZoomed = false;
        reload();
      } else redraw();
    };
    tools.addEventListener("input", apply);
    for (const box of runs) box.addEventListener("input", apply);
    apply();
  }
  const tools = document.getElementById("chart-tools");
  if (tools) setUpTools(tools);
  else options.x = document.querySelector("[data-charts-x]")?.dataset.chartsX || options.x; // pages whose points are moments

  // Also those that come while one scrolls: a page with thousands of metrics holds only what was in view.
  function adopt() {
    for (const figure of document.querySelectorAll("[data-chart]:not([data-adopted])")) {
      figure.dataset.adopted = "yes";
      charts.push(new app.Chart(figure));
      seen.observe(figure);
    }
  }
  adopt();
  document.addEventListener("htmx:load", adopt);
  document.addEventListener("themechange", () => {
    for (const chart of charts) {
      if (chart.isLoaded) chart.rebuild();
      else chart.buildLegend();
    }
  });

  // Runs of other pages have no socket here: while one of them is live, what is in view is fetched again.
  const polled = document.querySelector("[data-charts-every-s]");
  if (polled) setInterval(() => { if (!document.hidden) reload(); }, 1000 * Number(polled.dataset.chartsEveryS));

  const find = (key) => charts.find((chart) => chart.spec.key === key);
  app.charts = {
    add(rollout, values, notFinite, at) { for (const chart of charts) chart.add(rollout, values, notFinite, at); },
    // What part of an axis a chart shows: [first, last], null before it is drawn.
    range(key, axis) {
      const scale = find(key)?.plot?.scales[axis || "x"];
      return scale ? [scale.min, scale.max] : null;
    },
    // Kinds of the marks a chart draws: nan, inf, -inf, below.
    marks(key) { return (find(key)?.table?.marks || []).map((mark) => mark.kind); },
    reload,
    refine,
    // What a chart says of a rollout, line by line, as its legend would.
    texts(key, rollout) {
      const chart = find(key);
      return chart ? chart.spec.series.map((line) => chart.model.text(line, rollout)) : [];
    },
    // The drawn columns of a chart: {kind, values}; null where nothing is drawn.
    drawn(key) {
      const table = find(key)?.table;
      return table ? table.columns.map(({ kind, line }, index) => ({ kind, name: line.name, run: line.run, values: table.data[index + 1].map((value) => value ?? null) })) : [];
    },
  };
})();
