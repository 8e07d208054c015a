// Playing an environment: the board is fetched again when the socket says that the play moved; options go into the action line.
(function () {
  "use strict";
  const app = window.Spadework;
  const board = () => document.getElementById("board");

  function focusLine() {
    const line = document.getElementById("action");
    if (!line || line.disabled) return;
    line.focus({ preventScroll: true });
    line.closest("form").scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("run:events", (event) => {
    for (const one of event.detail) {
      const shown = board();
      if (one.k === "play" && shown && Number(shown.dataset.session) === one.p.session) {
        if (one.p.replies > Number(shown.dataset.replies) || "waiting" in shown.dataset) app.refetch(shown.dataset.boardUrl, "board").then(focusLine);
      }
      const gates = document.getElementById("gate-runs");
      if (one.k === "gates_rerun" && gates) app.refetch(gates.dataset.gatesUrl, "gate-runs");
    }
  });
  document.addEventListener("click", (event) => {
    const option = event.target instanceof Element ? event.target.closest("[data-fill]") : null;
    const line = document.getElementById("action");
    if (!option || !line) return;
    line.value = option.dataset.fill;
    line.focus();
    line.setSelectionRange(0, line.value.length);
  });
  document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.target?.id === "board" || event.detail.elt?.id === "board") focusLine(); });
  focusLine();
})();
