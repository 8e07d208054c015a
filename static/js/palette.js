// The command palette: one field, and a list the server finds for what is in it. shell.js listens for Ctrl+K.
(function () {
  "use strict";
  const app = window.Spadework;
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const DEBOUNCE_MS = 120;
  const LIMIT_S = 10;
  const field = document.getElementById("palette-text");
  const list = document.getElementById("palette-list");
  const status = document.getElementById("palette-status");
  let timer = 0;
  let asking = null; // the newest request; answers to any other are not shown
  let isWaiting = false; // the list is not that of what is in the field now
  let isPressed = false; // Enter came meanwhile: go when the list is there

  const options = () => [...list.querySelectorAll('[role="option"]')];
  const chosen = () => list.querySelector('[aria-selected="true"]');

  function choose(option) {
    chosen()?.setAttribute("aria-selected", "false");
    option?.setAttribute("aria-selected", "true");
    if (option) field.setAttribute("aria-activedescendant", option.id);
    else field.removeAttribute("aria-activedescendant");
    field.setAttribute("aria-expanded", String(option !== undefined));
  }
  function move(by) {
    const all = options();
    if (!all.length) return;
    choose(all[(all.indexOf(chosen()) + by + all.length) % all.length]);
    chosen().scrollIntoView({ block: "nearest" });
  }
  function show(html) {
    status.classList.remove("bad-text");
    htmx.swap(list, html, { swapStyle: "innerHTML" });
    list.scrollTop = 0;
    choose(options()[0]);
    if (isPressed) chosen()?.click();
    isPressed = false;
  }
  // Said here, where one looks, and not in the page behind.
  function fail(words) {
    isPressed = false;
    list.replaceChildren();
    choose(undefined);
    status.textContent = words;
    status.classList.add("bad-text");
  }

  // Not hx-get: htmx logs an error for each request it gives up for a newer one.
  async function ask() {
    asking?.abort();
    const mine = (asking = new AbortController());
    const limit = setTimeout(() => mine.abort(new DOMException("", "TimeoutError")), LIMIT_S * 1000);
    const url = new URL(dialog.dataset.url, location.href);
    url.searchParams.set("q", field.value);
    let put = () => {};
    try {
      const answer = await fetch(url, { headers: { "HX-Request": "true" }, signal: mine.signal });
      const elsewhere = answer.headers.get("HX-Redirect");
      const html = await answer.text();
      if (elsewhere) put = () => location.assign(elsewhere); // signed out meanwhile
      else if (answer.ok) put = () => show(html);
      else put = () => fail(`The server refused: ${answer.status} ${answer.statusText}`);
    } catch (error) {
      const isLate = error.name === "TimeoutError";
      put = () => fail(isLate ? `The server did not answer within ${LIMIT_S} s. Type on to ask again.` : "The server cannot be reached. Is it running?");
    }
    clearTimeout(limit);
    if (mine !== asking) return;
    isWaiting = false;
    put();
  }
  function askSoon(delayMs) {
    clearTimeout(timer);
    asking?.abort();
    asking = null;
    isWaiting = true;
    isPressed = false;
    timer = setTimeout(ask, delayMs);
  }

  app.openers.palette = () => {
    field.value = status.textContent = "";
    list.replaceChildren();
    choose(undefined);
    dialog.showModal();
    field.focus();
    askSoon(0);
  };
  dialog.addEventListener("close", () => {
    clearTimeout(timer);
    asking?.abort();
    asking = null;
  });
  field.addEventListener("input", () => askSoon(DEBOUNCE_MS));
  dialog.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key !== "Enter") return;
    else if (isWaiting) isPressed = true;
    else chosen()?.click();
    event.preventDefault();
  });
  list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
  list.addEventListener("mousemove", (event) => {
    const option = event.target.closest('[role="option"]');
    if (option && option !== chosen()) choose(option);
  });
  list.addEventListener("click", (event) => {
    const option = event.target.closest('[role="option"]');
    if (option && !event.ctrlKey && !event.metaKey && !event.shiftKey) dialog.close(); // with a key it opens beside this page
  });
})();
