// Flags on the pages of environments and episodes: marks at the place they point at, the dialog filled from where one is, live states.
(function () {
  "use strict";
  const app = window.Spadework;
  const dialog = document.getElementById("flag-dialog");
  const KINDS = new Set(["flag", "command", "command_asked", "command_sent", "environment_state", "environment_weight", "status"]);

  // Lines: "#L12" is a line, "#L12-L14" a range; shift-click on a line number makes one.
  function selection() {
    const found = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    if (!found) return null;
    const [first, last] = [Number(found[1]), Number(found[2] || found[1])];
    return { first: Math.min(first, last), last: Math.max(first, last) };
  }
  function eachLine(first, last, act) {
    for (let number = first; number <= last && number - first < 5000; number += 1) {
      const line = document.getElementById(`L${number}`);
      if (line) act(line);
    }
  }
  function showSelection() {
    for (const line of document.querySelectorAll(".line.selected")) line.classList.remove("selected");
    const range = selection();
    if (range && range.last > range.first) eachLine(range.first, range.last, (line) => line.classList.add("selected"));
  }
  function onLineClick(event) {
    const number = event.target instanceof Element ? event.target.closest(".code .line .no") : null;
    if (!number || !event.shiftKey) return;
    const range = selection();
    const to = Number(number.textContent);
    if (!range) return;
    event.preventDefault();
    const [first, last] = to < range.first ? [to, range.last] : [range.first, to];
    history.replaceState(null, "", first === last ? `#L${first}` : `#L${first}-L${last}`);
    showSelection();
  }

  // Marks.
  function mark() {
    for (const line of document.querySelectorAll(".line.flagged")) {
      line.classList.remove("flagged");
      line.removeAttribute("title");
    }
    for (const turn of document.querySelectorAll(".turn.flagged")) {
      turn.classList.remove("flagged");
      turn.querySelector(".flag-mark")?.remove();
    }
    for (const flag of document.querySelectorAll(".flag[data-first-line]")) {
      eachLine(Number(flag.dataset.firstLine), Number(flag.dataset.lastLine), (line) => {
        line.classList.add("flagged");
        line.title = line.title ? `${line.title}, ${flag.dataset.kind}` : `flagged: ${flag.dataset.kind}`;
      });
    }
    if (!document.querySelector(".transcript.reading")) return;
    for (const flag of document.querySelectorAll(".flag[data-turn]")) {
      const turn = document.getElementById(`t${flag.dataset.turn}`);
      if (!turn || turn.classList.contains("flagged")) continue;
      turn.classList.add("flagged");
      const link = document.createElement("a");
      link.className = "flag-mark";
      link.href = `#${flag.id}`;
      link.textContent = flag.dataset.kind;
      turn.querySelector(".turn-head .role")?.after(link);
    }
  }
  function addTurnButtons() {
    const template = document.getElementById("flag-turn-button");
    if (!template) return;
    for (const turn of document.querySelectorAll('.transcript.reading .turn[id^="t"]')) {
      if (turn.querySelector(".flag-turn")) continue;
      const button = template.content.firstElementChild.cloneNode(true);
      const number = turn.id.slice(1);
      button.dataset.turn = number;
      button.title = `Flag turn ${number}`;
      button.setAttribute("aria-label", button.title);
      turn.querySelector(".turn-head .end")?.prepend(button);
    }
  }

  // The dialog: what the address points at is what is flagged, until the person chooses something else.
  function field(name) {
    return dialog?.querySelector(`[name="${name}"]`);
  }
  function choose(subject) {
    const select = field("subject");
    if (select && [...select.options].some((option) => option.value === subject)) select.value = subject;
  }
  function fill(turn) {
    const range = selection();
    if (range && field("first_line")) {
      field("first_line").value = range.first;
      field("last_line").value = range.last;
      choose("lines");
    }
    const at = turn || /^#t(\d+)$/.exec(location.hash)?.[1];
    if (at && field("turn")) {
      field("turn").value = at;
      choose("turn");
    }
    showWeight();
  }
  function showWeight() {
    const box = document.getElementById("flag-weight-field");
    if (!box) return;
    box.hidden = field("wish").value !== "down_weight";
    field("weight").disabled = box.hidden;
  }
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const button = target?.closest(".flag-turn");
    if (button && dialog) {
      fill(button.dataset.turn);
      dialog.showModal();
    } else if (target?.closest('[data-open="flag-dialog"]')) fill("");
    onLineClick(event);
  });
  field("wish")?.addEventListener("change", showWeight);
  addEventListener("hashchange", showSelection);

  // Live: an event about flags or commands makes the list look again, at most once a second.
  let timer = 0;
  document.addEventListener("run:events", (event) => {
    if (timer || !event.detail.some((one) => KINDS.has(one.k))) return;
    timer = setTimeout(async () => {
      timer = 0;
      const list = document.getElementById("flags");
      if (!list || !app.refetch) return;
      await app.refetch(list.dataset.url, "flags");
      mark();
    }, 300);
  });

  const transcript = document.querySelector(".transcript.reading");
  if (transcript) new MutationObserver(() => { addTurnButtons(); mark(); }).observe(transcript, { childList: true });
  addTurnButtons();
  mark();
  showSelection();
  if (selection()) document.getElementById(`L${selection().first}`)?.scrollIntoView({ block: "center" });
})();
