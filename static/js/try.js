// Trying a checkpoint: Enter sends a message, and the line is ready again when the answer has come.
(function () {
  "use strict";
  const board = () => document.getElementById("try-board");
  let wasWaiting = Boolean(board() && "waiting" in board().dataset);

  function ready() {
    const shown = board();
    const isWaiting = Boolean(shown && "waiting" in shown.dataset);
    const line = document.getElementById("text");
    if (wasWaiting && !isWaiting && line && !line.disabled) {
      line.focus({ preventScroll: true });
      line.closest("form").scrollIntoView({ block: "nearest" });
    }
    wasWaiting = isWaiting;
  }

  document.querySelector("main").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || !(event.target instanceof Element) || !event.target.matches("[data-send]")) return;
    event.preventDefault();
    if (event.target.value.trim()) event.target.form.requestSubmit(event.target.form.querySelector("button[value=chat]"));
  });
  document.addEventListener("htmx:afterSettle", ready);
})();
