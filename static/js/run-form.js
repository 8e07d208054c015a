// The start form: marks what differs from the preset while one types, and can undo it. It works without this file.
(function () {
  "use strict";
  const form = document.querySelector("[data-run-form]");
  if (!form) return;
  const settings = [...form.querySelectorAll("[data-setting]")];
  const undo = form.querySelector("[data-reset-form]");

  const control = (setting) => setting.querySelector("input, select, textarea");
  const textOf = (field) => (field.type === "checkbox" ? String(field.checked) : field.value);
  const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean).join("\n");

  function isChanged(setting) {
    const text = textOf(control(setting)).trim();
    const base = setting.dataset.base.trim();
    if (setting.dataset.kind === "int" || setting.dataset.kind === "float") {
      return text === "" || Number.isNaN(Number(text)) ? text !== base : Number(text) !== Number(base);
    }
    return lines(text) !== lines(base);
  }

  function update() {
    let total = 0;
    for (const setting of settings) {
      const changed = isChanged(setting);
      setting.classList.toggle("changed", changed);
      setting.querySelector("[data-was]").hidden = !changed;
      total += changed ? 1 : 0;
    }
    for (const section of form.querySelectorAll("[data-section]")) {
      const count = section.querySelectorAll(".setting.changed").length;
      const mark = section.querySelector("[data-changed-count]");
      mark.hidden = count === 0;
      mark.textContent = `${count} changed`;
    }
    for (const mirror of form.querySelectorAll("[data-mirror]")) {
      const field = form.elements.namedItem(mirror.dataset.mirror);
      if (field) mirror.textContent = field.value || "–";
    }
    form.querySelector("[data-changed-total]").textContent = String(total);
    undo.disabled = total === 0;
  }

  undo.addEventListener("click", () => {
    for (const setting of settings) {
      const field = control(setting);
      if (field.type === "checkbox") field.checked = setting.dataset.base === "true";
      else field.value = setting.dataset.base;
    }
    update();
  });
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => {
    const button = document.getElementById("start-run");
    if (button.dataset.sent) event.preventDefault(); // a second click must not start a second run
    button.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { delete document.getElementById("start-run").dataset.sent; });
  update();
  form.querySelector("[aria-invalid='true']")?.focus();
})();
