// The charts of a page: fetched when they come into view, drawn again with the theme, smoothed and scaled by the page's tools.
(function () {
  "use strict";
  const app = window.Spadework;
  const options = app.chartOptions;
  const charts = [];

  // Charts load when they come into view, and those that come together in one request.
  let wanted = [];
  let timer = 0;
  function want(chart) {
    wanted.push(chart);
    if (!timer) timer = setTimeout(fetchWanted, 30);
  }
  async function fetchWanted() {
    timer = 0;
    const batch = wanted.splice(0, 20);
    if (wanted.length) timer = setTimeout(fetchWanted, 0);
    const byUrl = Map.groupBy ? Map.groupBy(batch, (chart) => chart.figure.dataset.url) : new Map([[batch[0].figure.dataset.url, batch]]);
    for (const [url, group] of byUrl) {
      const query = new URLSearchParams();
      for (const name of new Set(group.flatMap((chart) => chart.names()))) query.append("name", name);
      query.append("points", String(Math.max(400, 2 * Math.ceil(group[0].plotArea.getBoundingClientRect().width))));
      try {
        const answer = await fetch(`${url}?${query}`, { headers: { Accept: "application/json" } });
        if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
        const body = await answer.json();
        for (const chart of group) chart.load(body.series);
      } catch (error) {
        for (const chart of group) chart.note.textContent = `the points could not be fetched (${error.message}); reload the page`;
      }
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      want(charts.find((chart) => chart.figure === entry.target));
    }
  }, { rootMargin: "200px" });
  for (const figure of document.querySelectorAll("[data-chart]")) {
    charts.push(new app.Chart(figure));
    seen.observe(figure);
  }

  document.addEventListener("themechange", () => {
    for (const chart of charts) {
      if (chart.isLoaded) chart.rebuild();
      else chart.buildLegend();
    }
  });

  // The tools of the charts page; what is chosen stays in the address.
  const tools = document.getElementById("chart-tools");
  if (tools) {
    const query = new URLSearchParams(location.search);
    const slider = tools.querySelector("[data-smooth]");
    const log = tools.querySelector("[data-log]");
    slider.value = query.get("smooth") || "0";
    log.checked = query.get("log") === "1";
    const apply = () => {
      options.smooth = Number(slider.value);
      options.log = log.checked;
      tools.querySelector("[data-smooth-value]").textContent = slider.value;
      const chosen = new URLSearchParams();
      if (options.smooth) chosen.set("smooth", slider.value);
      if (options.log) chosen.set("log", "1");
      history.replaceState(null, "", chosen.size ? `?${chosen}` : location.pathname);
      for (const chart of charts) if (chart.isLoaded) chart.rebuild();
    };
    tools.addEventListener("input", apply);
    apply();
  }

  app.charts = {
    add(rollout, values) { for (const chart of charts) chart.add(rollout, values); },
    // What part of the x axis a chart shows: [first, last rollout], null before it is drawn.
    range(key) {
      const plot = charts.find((chart) => chart.spec.key === key)?.plot;
      return plot ? [plot.scales.x.min, plot.scales.x.max] : null;
    },
    reload() { for (const chart of charts) if (chart.isLoaded) want(chart); },
  };
})();
