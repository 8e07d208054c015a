// Review queues: ticking items for a common label, and the label form by keyboard. Keys themselves are data-key (shell.js).
(function () {
  "use strict";

  // Bulk: the bar appears with the first tick and says how many there are.
  const boxes = () => [...document.querySelectorAll('.queue-items input[name="item"]:not(:disabled)')];
  const bar = document.querySelector("[data-bulk]");
  function showBar() {
    if (!bar) return;
    const ticked = boxes().filter((box) => box.checked);
    bar.hidden = !ticked.length;
    bar.querySelector("[data-bulk-count]").textContent = String(ticked.length);
    for (const box of boxes()) box.closest("tr").setAttribute("aria-selected", String(box.checked));
  }
  document.addEventListener("change", (event) => {
    const box = event.target instanceof HTMLInputElement ? event.target : null;
    if (box && "tickAll" in box.dataset) for (const one of boxes()) one.checked = box.checked;
    if (box?.closest(".queue-items")) showBar();
  });
  showBar();

  // The label: what belongs to "wrong" only is off for "fine"; x switches quarantine on and off.
  const form = document.getElementById("label-form");
  const wish = document.getElementById("label-wish");
  function follow() {
    if (!form) return;
    const isFine = form.elements.verdict.value === "fine";
    for (const part of form.querySelectorAll("[data-wrong-only] input, [data-wrong-only] select, [data-wrong-only] button")) part.disabled = isFine;
    const field = document.getElementById("label-weight-field");
    field.hidden = wish.value !== "down_weight";
    if (field.hidden) document.getElementById("label-weight").disabled = true;
  }
  form?.addEventListener("change", follow);
  document.querySelector("[data-toggle-quarantine]")?.addEventListener("click", () => {
    wish.value = wish.value === "quarantine" ? "note" : "quarantine";
    follow();
  });
  document.getElementById("label-comment")?.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Escape") event.target.blur();
  });
  follow();

  // Turns that a signal points at.
  for (const number of (document.querySelector("[data-marked-turns]")?.dataset.markedTurns || "").split(" ").filter(Boolean)) {
    document.getElementById(`t${number}`)?.classList.add("flagged");
  }
})();
