// Choosing rows of a list: how many, what each act would change, shift-click for a range. Works without this file, with fewer words.
(function () {
  "use strict";
  const area = document.querySelector("[data-bulk]");
  const form = document.getElementById("bulk-form");
  if (!area || !form) return;
  const all = area.querySelector("[data-pick-page]");
  const whole = form.querySelector("[data-whole-filter]");
  const chosen = new Set();
  let last = null;

  const boxes = () => [...area.querySelectorAll("[data-pick]")];

  function update() {
    const picked = boxes().filter((box) => box.checked);
    const isWhole = whole.checked;
    chosen.clear();
    for (const box of picked) chosen.add(box.value);
    for (const box of boxes()) box.closest("tr").setAttribute("aria-selected", String(box.checked));
    all.checked = picked.length > 0 && picked.length === boxes().length;
    all.indeterminate = picked.length > 0 && !all.checked;
    form.querySelector("[data-picked-count]").textContent = isWhole ? "the whole list" : `${picked.length} chosen`;
    for (const count of form.querySelectorAll("[data-can-count]")) {
      const can = picked.filter((box) => box.dataset.can.split(" ").includes(count.dataset.canCount)).length;
      count.textContent = isWhole || can === picked.length ? "" : ` (${can} of ${picked.length})`;
      count.closest("button").disabled = !isWhole && can === 0;
    }
  }

  area.addEventListener("click", (event) => {
    const box = event.target instanceof HTMLInputElement && "pick" in event.target.dataset ? event.target : null;
    if (!box) return;
    if (event.shiftKey && last && last.isConnected) {
      const list = boxes();
      const [from, to] = [list.indexOf(last), list.indexOf(box)].sort((a, b) => a - b);
      for (const one of list.slice(from, to + 1)) one.checked = box.checked;
    }
    last = box;
  });
  area.addEventListener("change", (event) => {
    if (event.target === all) for (const box of boxes()) box.checked = all.checked;
    update();
  });
  // A row that was fetched again comes unchosen.
  document.addEventListener("htmx:load", () => {
    for (const box of boxes()) if (chosen.has(box.value)) box.checked = true;
    update();
  });
  addEventListener("pageshow", update);
  all.hidden = false;
  update();
})();
