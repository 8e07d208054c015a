// The start form: marks what differs from the preset while one types, and can undo it. It works without this file.
(function () {
  "use strict";
  const form = document.querySelector("[data-run-form]");
  if (!form) return;
  const settings = [...form.querySelectorAll("[data-setting]")];
  const undo = form.querySelector("[data-reset-form]");

  const control = (setting) => setting.querySelector("input, select:not([data-fills]), textarea");
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

  const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text) || "empty";

  // One line of the list of differences: setting, what it was, what it is.
  function changeOf(setting) {
    const item = document.createElement("li");
    const parts = [["span", control(setting).name], ["del", short(setting.dataset.base)], ["ins", short(textOf(control(setting)))]];
    for (const [tag, text] of parts) {
      const part = document.createElement(tag);
      if (tag === "span") part.className = "mono";
      part.textContent = text;
      item.append(part, " ");
    }
    return item;
  }

  function update() {
    let total = 0;
    const changes = [];
    for (const setting of settings) {
      const changed = isChanged(setting);
      if (changed) changes.push(changeOf(setting));
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
    for (const list of form.querySelectorAll("[data-fills]")) {
      const text = document.getElementById(list.dataset.fills).value;
      list.value = [...list.options].some((option) => option.value === text) ? text : "";
    }
    for (const mirror of form.querySelectorAll("[data-mirror]")) {
      const field = form.elements.namedItem(mirror.dataset.mirror);
      if (field) mirror.textContent = field.value || "–";
    }
    form.querySelector("[data-changed-total]").textContent = String(total);
    form.querySelector("[data-changes]").replaceChildren(...changes);
    undo.disabled = total === 0;
  }

  // A list beside a line: choosing fills the line, and the list follows what is typed.
  for (const list of form.querySelectorAll("[data-fills]")) {
    list.addEventListener("input", () => {
      const line = document.getElementById(list.dataset.fills);
      if (list.value) line.value = list.value;
      else { line.focus(); line.select(); }
    });
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
    if (event.submitter?.name === "dry") return;
    const button = document.getElementById("start-run");
    if (button.dataset.sent) event.preventDefault(); // a second click must not start a second run
    button.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { delete document.getElementById("start-run").dataset.sent; });
  update();
  form.querySelector("[aria-invalid='true']")?.focus();
})();
