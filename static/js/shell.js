// The shell of every page: theme, times, copy, menus, keys, htmx. No page needs to call any of it; see the data- attributes.
(function () {
  "use strict";
  const root = document.documentElement;
  const app = (window.Spadework = window.Spadework || {});
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content || "";
  const csrfToken = () => meta("csrf-token");

  // One clock on the page: the server's. Machines' clocks differ, and "in 3 s" for something past is a lie.
  const serverTime = Number(meta("server-time"));
  const clockOffsetMs = serverTime ? serverTime * 1000 - Date.now() : 0;
  app.now = () => Date.now() + clockOffsetMs;
  app.csrfToken = csrfToken;

  // A design token as a colour canvas understands: app.color("--arm-hinted"). Ask again after the "themechange" event.
  app.color = (token) => {
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.style.color = `var(${token})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  // Theme -----------------------------------------------------------------------------------------------------------
  const THEMES = ["system", "light", "dark"];
  function themeChoice() {
    return root.dataset.theme || "system";
  }
  function setTheme(choice) {
    if (choice === "system") delete root.dataset.theme;
    else root.dataset.theme = choice;
    try {
      localStorage.setItem("spadework.theme", choice);
    } catch (blocked) {
      console.info("storage is off: the theme holds for this page only", blocked);
    }
    labelThemeButtons();
    document.dispatchEvent(new CustomEvent("themechange", { detail: { choice } }));
    const url = document.querySelector("[data-theme-button]")?.dataset.url;
    if (!url) return;
    const body = new URLSearchParams({ theme: choice });
    fetch(url, { method: "POST", body, headers: { "X-CSRFToken": csrfToken(), "X-Requested-With": "fetch" } }).then((answer) => {
      if (!answer.ok) console.warn(`the theme was not kept: ${answer.status}`);
    }, (error) => console.warn("the theme was not kept", error));
  }
  function nextTheme() {
    setTheme(THEMES[(THEMES.indexOf(themeChoice()) + 1) % THEMES.length]);
  }
  function labelThemeButtons() {
    for (const button of document.querySelectorAll("[data-theme-button]")) {
      button.title = `Theme: ${themeChoice()} (Alt+M)`;
      button.setAttribute("aria-label", `Theme: ${themeChoice()}. Change`);
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (themeChoice() === "system") document.dispatchEvent(new CustomEvent("themechange", { detail: { choice: "system" } }));
  });

  // Times -----------------------------------------------------------------------------------------------------------
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  function refreshTimes(scope) {
    const now = app.now();
    for (const element of (scope || document).querySelectorAll("time[data-relative]")) {
      const moment = Date.parse(element.dateTime);
      if (Number.isNaN(moment)) continue;
      const text = app.format.relative(moment, now);
      if (element.textContent !== text) element.textContent = text;
      if (!element.dataset.exact) {
        element.dataset.exact = "yes";
        element.title = `${exact.format(moment)} · ${element.title}`;
      }
    }
  }
  app.refreshTimes = refreshTimes;

  // Copy ------------------------------------------------------------------------------------------------------------
  async function copyFrom(button) {
    const text = button.dataset.copy ?? document.querySelector(button.dataset.copyFrom)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
    } catch (refused) {
      // No clipboard on plain http from another machine: select through a scratch field instead.
      const field = document.createElement("textarea");
      field.value = text;
      field.className = "sr-only";
      document.body.append(field);
      field.select();
      const worked = document.execCommand("copy");
      field.remove();
      if (!worked) return console.warn("copying was refused", refused);
    }
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1500);
    return undefined;
  }

  // Columns: <input type=checkbox data-column-toggle="regret" data-table="runs-table"> hides cells with data-col="regret".
  function columnKey(table) {
    return `spadework.columns.${table}`;
  }
  function hiddenColumns(table) {
    try {
      return new Set(JSON.parse(localStorage.getItem(columnKey(table)) || "[]"));
    } catch (unreadable) {
      return new Set(); // storage is off or holds something else: every column shows
    }
  }
  function applyColumns() {
    for (const box of document.querySelectorAll("[data-column-toggle]")) {
      const hidden = hiddenColumns(box.dataset.table).has(box.dataset.columnToggle);
      box.checked = !hidden;
      const cells = document.getElementById(box.dataset.table)?.querySelectorAll(`[data-col="${CSS.escape(box.dataset.columnToggle)}"]`);
      for (const cell of cells || []) cell.hidden = hidden;
    }
  }
  function toggleColumn(box) {
    const hidden = hiddenColumns(box.dataset.table);
    if (box.checked) hidden.delete(box.dataset.columnToggle);
    else hidden.add(box.dataset.columnToggle);
    try {
      localStorage.setItem(columnKey(box.dataset.table), JSON.stringify([...hidden]));
    } catch (blocked) {
      console.info("storage is off: the columns hold for this page only", blocked);
    }
    applyColumns();
  }

  // Keys: any element with data-key="j" is clicked by that key; data-key-label (or its text) goes into the "?" sheet. ----
  let prefix = "";
  let prefixTimer = 0;
  function isTyping(target) {
    if (target instanceof HTMLInputElement) return !/^(checkbox|radio|button|submit)$/.test(target.type);
    return target instanceof HTMLElement && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName));
  }
  // Enter on something that Enter itself opens or presses is not a shortcut.
  function isPressedBy(key, target) {
    return key === "Enter" && target instanceof Element && target.closest("a, button, summary") !== null;
  }
  function pressed(key) {
    for (const element of document.querySelectorAll("[data-key]")) {
      if (element.dataset.key.split(" ").join("") === key && !element.disabled && element.getClientRects().length) return element;
    }
    return null;
  }
  function act(element) {
    if (isTyping(element)) element.focus();
    else element.click();
  }
  // Ctrl+K, Cmd+K: also while one types, but not over another dialog. Layouts without Latin letters go by the place of the key.
  function isPaletteChord(event) {
    const isK = event.key === "k" || event.key === "K" || (event.code === "KeyK" && event.key > "\u007f");
    return isK && event.ctrlKey !== event.metaKey && !event.altKey && !event.shiftKey && openers.palette !== undefined;
  }
  function togglePalette(event) {
    const open = document.querySelector("dialog[open]");
    if (open && open.id !== "palette") return;
    event.preventDefault();
    if (event.repeat) return;
    closeMenus(null);
    if (open) open.close();
    else openers.palette();
  }
  function onKey(event) {
    if (isPaletteChord(event)) return togglePalette(event);
    if (event.altKey && !event.ctrlKey && !event.metaKey && event.code === "KeyM") {
      event.preventDefault();
      return nextTheme();
    }
    if (event.key === "Escape") {
      // First out of the field one types in, so that the page's keys are within reach again.
      if (isTyping(event.target) && !document.querySelector("dialog[open], details.menu[open]")) event.target.blur();
      return closeMenus(null);
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isPressedBy(event.key, event.target) || document.querySelector("dialog[open]")) return undefined;
    if (event.key === "?") {
      event.preventDefault();
      return openKeys();
    }
    // The second key of a chord is never a key of its own: "g" and then a slip must not pause a run.
    const element = pressed(prefix + event.key);
    clearTimeout(prefixTimer);
    if (event.key === "g" && !prefix && !element) {
      prefix = "g";
      prefixTimer = setTimeout(() => { prefix = ""; }, 1000);
      return undefined;
    }
    prefix = "";
    if (!element) return undefined;
    event.preventDefault();
    return act(element);
  }
  // Dialogs that are made ready first; [data-open] opens any dialog by its id.
  const openers = (app.openers = { keys: openKeys });
  function openKeys() {
    const dialog = document.getElementById("keys");
    if (!dialog) return;
    const list = dialog.querySelector("[data-page-keys]");
    list.replaceChildren();
    const seen = new Set();
    for (const element of document.querySelectorAll("[data-key]")) {
      if (seen.has(element.dataset.key) || !element.getClientRects().length) continue;
      seen.add(element.dataset.key);
      const keys = document.createElement("dt");
      for (const part of element.dataset.key.split(" ")) {
        const key = document.createElement("kbd");
        key.textContent = part;
        keys.append(key, " ");
      }
      const what = document.createElement("dd");
      what.textContent = element.dataset.keyLabel || element.getAttribute("aria-label") || element.textContent.trim();
      list.append(keys, what);
    }
    dialog.showModal();
  }

  // Menus, dialogs, messages ------------------------------------------------------------------------------------------
  function closeMenus(except) {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (menu === except) continue;
      const hadFocus = menu.contains(document.activeElement);
      menu.open = false;
      if (hadFocus && !except) menu.querySelector("summary")?.focus();
    }
  }
  function onClick(event) {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    closeMenus(target.closest("details.menu"));
    const copy = target.closest("[data-copy], [data-copy-from]");
    if (copy) copyFrom(copy);
    if (target.closest("[data-theme-button]")) nextTheme();
    const opener = target.closest("[data-open]");
    if (opener) {
      const id = opener.dataset.open;
      if (openers[id]) openers[id]();
      else document.getElementById(id)?.showModal();
    }
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    if (target.closest("[data-dismiss]")) target.closest(".message")?.remove();
    if (target instanceof HTMLDialogElement) target.close(); // a click on the backdrop
  }
  document.addEventListener("change", (event) => {
    if (event.target instanceof HTMLInputElement && event.target.dataset.columnToggle) toggleColumn(event.target);
  });

  // htmx ------------------------------------------------------------------------------------------------------------
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") event.detail.headers["X-CSRFToken"] = csrfToken();
  });
  document.addEventListener("htmx:load", (event) => {
    refreshTimes(event.detail.elt instanceof Element ? event.detail.elt.parentElement || document : document);
    applyColumns();
  });
  // A page that polls fails as often as it asks: a failure is said once, and no longer once that request succeeds.
  const failures = new Map(); // request -> the line that says why it failed
  const requestOf = (detail) => `${detail.requestConfig?.verb} ${detail.requestConfig?.path}`;
  function failed(detail, text) {
    const said = failures.get(requestOf(detail));
    if (said?.isConnected && said.textContent === text) return;
    said?.remove();
    failures.set(requestOf(detail), say(text));
  }
  document.addEventListener("htmx:responseError", ({ detail }) => {
    const { xhr } = detail;
    let reason = "";
    try { reason = JSON.parse(xhr.responseText).detail; } catch { /* no problem details: of a proxy, say */ }
    failed(detail, `The server refused: ${reason || `${xhr.status} ${xhr.statusText}`}`);
  });
  document.addEventListener("htmx:sendError", ({ detail }) => failed(detail, "The server cannot be reached. Is it running?"));
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!detail.successful) return;
    failures.get(requestOf(detail))?.remove();
    failures.delete(requestOf(detail));
  });

  // A message at the top of the page, as Django's are: app.say("text", "error" | "success" | "warning").
  function say(text, tone) {
    const list = document.getElementById("messages");
    if (!list) return null;
    const item = document.createElement("li");
    item.className = `message ${tone || "error"}`;
    item.textContent = text;
    list.append(item);
    return item;
  }
  app.say = say;

  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onClick);
  labelThemeButtons();
  applyColumns();
  refreshTimes();
  setInterval(() => refreshTimes(), 1000);
})();
