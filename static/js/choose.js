// Ticking rows of a list: the button says how many it will take.
(function () {
  "use strict";
  const boxes = () => [...document.querySelectorAll('input[name="key"][form="choose-form"]')];
  function show() {
    const count = boxes().filter((box) => box.checked).length;
    const button = document.querySelector("[data-chosen-button]");
    if (!button) return;
    button.disabled = count === 0;
    button.querySelector("[data-chosen-count]").textContent = String(count);
  }
  document.addEventListener("change", (event) => {
    const target = event.target;
    if (!(target instanceof HTMLInputElement)) return;
    if ("tickAll" in target.dataset) for (const box of boxes()) box.checked = target.checked;
    if ("tickAll" in target.dataset || target.name === "key") show();
  });
  show();
})();
