// The log page: follows the end while one is at the end, stays put while one reads further up or has text selected.
(function () {
  "use strict";
  const AT_END_PX = 24;
  let top = 0;
  let follows = true;

  const text = () => document.querySelector("#log .log-text");

  function remember() {
    const box = text();
    if (!box) return;
    top = box.scrollTop;
    follows = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
  }
  function restore() {
    const box = text();
    if (box) box.scrollTop = follows ? box.scrollHeight : top;
  }
  function hasSelection() {
    const selection = getSelection();
    return Boolean(selection && !selection.isCollapsed && text()?.contains(selection.anchorNode));
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id === "log" && hasSelection()) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.target.id === "log") remember(); });
  document.addEventListener("htmx:afterSettle", () => restore());
  restore();
})();
