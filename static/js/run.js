// A run's page, live: what the socket says goes into the stage strip, the figures and the charts; tables are fetched again.
(function () {
  "use strict";
  const app = window.Spadework;
  const { num, interval, duration } = app.format;
  const root = document.getElementById("run-live");
  if (!root) return;
  const Z_95 = 1.96;
  const TABLE_KINDS = new Set(["environment", "hint", "regret", "environment_state", "designer_reward", "warning", "ingest_warning", "command", "command_asked", "command_sent"]);
  const HEAD_KINDS = new Set(["status", "run_state", "run_started", "renamed", "tagged", "shelved", "checkpoint"]);
  const state = { rollout: null, accepted: 0, rejected: 0, countedTo: 0, lastEvent: 0, fresh: {} };

  // Fragments: at most one request a second for each, never two at once, and the newest state wins. A page nobody sees waits.
  function refresher(url, targetId) {
    let timer = 0;
    let isBusy = false;
    let isWanted = false;
    async function run() {
      timer = 0;
      if (!document.getElementById(targetId)) return;
      if (document.hidden) {
        document.addEventListener("visibilitychange", run, { once: true });
        return;
      }
      isBusy = true;
      await app.refetch(url, targetId);
      isBusy = false;
      if (isWanted) {
        isWanted = false;
        timer = setTimeout(run, 1000);
      }
    }
    return (delayMs) => {
      if (isBusy || timer) isWanted = isBusy || isWanted;
      else timer = setTimeout(run, delayMs);
    };
  }
  const refreshHead = refresher(root.dataset.headUrl, "run-head");
  const refreshProgress = refresher(root.dataset.progressUrl, "progress");
  const refreshLatest = refresher(root.dataset.latestUrl, "latest");

  function stage(name) {
    return document.querySelector(`#progress [data-stage="${CSS.escape(name)}"]`);
  }

  function setStage(item, word, done, total) {
    item.className = `stage ${word}`;
    if (word === "active") item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
    const bar = item.querySelector("progress");
    bar.max = total || 1;
    bar.value = word === "done" ? bar.max : done || 0;
    bar.setAttribute("aria-label", `${item.dataset.stage}: ${word}`);
    item.querySelector("[data-counts]").textContent = total > 1 ? `${done}/${total}` : "";
  }

  function startRollout(rollout, payload) {
    state.rollout = rollout;
    state.accepted = 0;
    state.rejected = 0;
    const title = document.querySelector("#progress [data-rollout]");
    if (!title) return refreshProgress(0); // the page was made before the first rollout
    title.textContent = String(rollout);
    document.querySelector("#progress [data-rollout-kind]").textContent = payload.regeneration ? "writes a new set" : `offset ${payload.offset}, plays the set again`;
    for (const item of document.querySelectorAll("#progress [data-stage]")) {
      const isSkipped = !payload.regeneration && ["design", "gates", "hints"].includes(item.dataset.stage);
      setStage(item, isSkipped ? "skipped" : "todo", 0, 0);
      item.querySelector("[data-stage-note]").textContent = isSkipped ? "kept set" : "";
    }
    return undefined;
  }

  function setFigure(name, text, rollout) {
    const figure = document.querySelector(`#progress [data-figure="${CSS.escape(name)}"]`);
    if (!figure) return;
    figure.querySelector("[data-value]").textContent = text;
    figure.querySelector("[data-note]").textContent = `rollout ${rollout}`;
  }

  function share(value) {
    const rounded = Math.round(value * 1000) / 10;
    return `${Number.isInteger(rounded) ? rounded : rounded.toFixed(1)}\u202f%`;
  }

  function showMetrics(rollout, values, notFinite, at) {
    for (const figure of document.querySelectorAll("#progress [data-figure]")) {
      const name = figure.dataset.figure;
      const value = values[name];
      if (typeof value !== "number") continue; // not measured this time: the figure says of which rollout it is
      const error = name === "regret/mean" ? values["regret/standard_error"] : null;
      const text = "share" in figure.dataset ? share(value) : typeof error === "number" ? interval(value, Z_95 * error) : num(value);
      setFigure(name, text, rollout);
    }
    app.charts?.add(rollout, values, notFinite, at);
  }

  const HANDLERS = {
    rollout_started: (event) => startRollout(event.r, event.p),
    phase: (event) => {
      const item = stage(event.p.phase);
      if (!item) return;
      if (event.r !== state.rollout && state.rollout !== null) return;
      setStage(item, event.p.state === "finished" ? "done" : "active", event.p.done, event.p.total);
    },
    candidate: (event) => {
      if (event.r !== state.rollout || event.p.id <= state.countedTo) return;
      if (event.p.accepted) state.accepted += 1;
      else state.rejected += 1;
      const note = stage("gates")?.querySelector("[data-stage-note]");
      if (note) note.textContent = `${state.accepted} ok · ${state.rejected} rejected`;
    },
    metrics: (event) => showMetrics(event.r, event.p.values, event.p.not_finite, event.t),
    rollout_finished: (event) => {
      const done = document.querySelector("[data-rollouts-done]");
      if (done) done.textContent = String(event.r + 1);
      setEta(event.p.eta_s, event.t * 1000);
    },
    run_started: (event) => {
      state.rollout = null;
      refreshProgress(0);
      if (event.a > 1) {
        app.charts?.reload(); // the older attempt's tail is a ghost now
        refreshLatest(200);
      }
    },
  };

  function setEta(seconds, at) {
    const eta = document.querySelector("[data-eta]");
    if (!eta) return;
    eta.dataset.etaS = seconds ?? "";
    eta.dataset.etaAt = new Date(at).toISOString();
    tickEta();
  }

  function tickEta() {
    const eta = document.querySelector("[data-eta]");
    const status = document.getElementById("run-head")?.dataset.status;
    if (!eta) return;
    const total = Number(eta.dataset.etaS);
    const since = (app.now() - Date.parse(eta.dataset.etaAt)) / 1000;
    const isShown = eta.dataset.etaS !== "" && total > 0 && !Number.isNaN(since) && status === "running";
    eta.hidden = !isShown;
    if (!isShown) return;
    const left = total - since;
    eta.textContent = left > 5 ? `ETA ${duration(left)}` : "about to end";
  }

  function countFresh(kind) {
    for (const pill of document.querySelectorAll("[data-new-pill]")) {
      if (pill.dataset.newPill !== kind) continue;
      state.fresh[kind] = (state.fresh[kind] || 0) + 1;
      pill.textContent = `${state.fresh[kind]} new`;
      pill.hidden = false;
    }
  }

  function touch(seconds) {
    const time = document.querySelector("#run-state time");
    if (!time) return refreshHead(0);
    if (seconds <= state.lastEvent) return undefined;
    state.lastEvent = seconds;
    time.dateTime = new Date(seconds * 1000).toISOString();
    delete time.dataset.exact;
    return undefined;
  }

  function onEvents(events) {
    for (const event of events) {
      try {
        if (!event.x) HANDLERS[event.k]?.(event);
      } catch (error) {
        console.error(`event ${event.c} (${event.k}) could not be shown`, error);
      }
      countFresh(event.k);
      if (TABLE_KINDS.has(event.k)) refreshLatest(300);
      if (HEAD_KINDS.has(event.k)) refreshHead(0);
    }
    // Only what the trainer logged says that it lives; what people do here has no attempt.
    for (const event of events) if (event.a !== null) touch(event.t);
    app.refreshTimes();
    document.dispatchEvent(new CustomEvent("run:events", { detail: events }));
  }

  function onMessage(message) {
    if (message.type !== "status") return;
    const head = document.getElementById("run-head");
    if (head && head.dataset.status !== message.status) refreshHead(0);
    if (typeof message.eta_s === "number") setEta(message.eta_s, app.now() - 1000 * (message.eta_age_s ?? 0));
  }

  const title = document.querySelector("#progress [data-rollout]");
  if (title) {
    state.rollout = Number(title.textContent);
    const note = stage("gates")?.querySelector("[data-stage-note]");
    const counts = /(\d+) ok · (\d+) rejected/.exec(note?.textContent || "");
    state.countedTo = Number(note?.dataset.countedTo || 0); // read after the cursor: the socket tells of some of them again
    if (counts) [state.accepted, state.rejected] = [Number(counts[1]), Number(counts[2])];
  }
  for (const pill of document.querySelectorAll("[data-new-pill]")) pill.addEventListener("click", () => location.reload());
  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.detail.elt;
    if (form instanceof Element && form.dataset.closes && event.detail.successful) document.getElementById(form.dataset.closes)?.close();
  });
  setInterval(tickEta, 1000);
  tickEta();
  new app.LiveSocket({ path: `/ws/runs/${root.dataset.run}/`, cursor: Number(root.dataset.cursor), onEvents, onMessage, onState: app.showLiveState });
})();
