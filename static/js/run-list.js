// The list of runs, live: rows that changed are fetched again; runs that are not on the page are announced, never pushed in.
(function () {
  "use strict";
  const app = window.Spadework;
  const table = document.querySelector("[data-live-list]");
  const pill = document.getElementById("new-runs");
  const MIN_GAP_MS = 900;
  const waiting = new Map(); // run id -> time of its last fetch
  const unseen = new Set();
  let newest = 0;
  let liveState = "connecting";

  function refresh(id) {
    const row = document.getElementById(`run-${id}`);
    if (!row) return;
    const since = Date.now() - (waiting.get(id) || 0);
    if (since < MIN_GAP_MS) {
      if (!row.dataset.queued) {
        row.dataset.queued = "yes";
        setTimeout(() => { delete row.dataset.queued; refresh(id); }, MIN_GAP_MS - since);
      }
      return;
    }
    waiting.set(id, Date.now());
    app.refetch(table.dataset.rowUrl.replace("/0/", `/${id}/`), `run-${id}`);
  }

  function announce(id) {
    if (id <= newest || unseen.has(id)) return;
    unseen.add(id);
    pill.hidden = false;
    pill.textContent = `${unseen.size} new`;
  }

  function onMessage(message) {
    if (message.type !== "changed") return;
    for (const run of message.runs) {
      if (document.getElementById(`run-${run.id}`)) refresh(run.id);
      else announce(run.id);
    }
  }

  // Wake-ups are not repeated: what changed while the page was cut off is known only by looking at every row again.
  function onState(word, detail) {
    app.showLiveState(word, detail);
    if (word === "live" && liveState !== "connecting") for (const row of document.querySelectorAll("[data-run]")) refresh(Number(row.dataset.run));
    liveState = word;
  }

  for (const row of document.querySelectorAll("[data-run]")) newest = Math.max(newest, Number(row.dataset.run));
  pill?.addEventListener("click", () => location.reload());
  new app.LiveSocket({ path: "/ws/runs/", cursor: null, isQuiet: true, onEvents() {}, onMessage, onState });
})();
