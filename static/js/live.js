// A run's events over a WebSocket: credit acknowledgements, reconnecting from the last cursor, states that people can see.
(function () {
  "use strict";
  const app = (window.Spadework = window.Spadework || {});
  const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15000];
  const SILENT_MS = 15000; // the server speaks every 5 s; after three missed turns what is shown is stale
  const DEAD_MS = 40000;
  const ENDINGS = {
    4400: "the page sent something wrong: reload it",
    4403: "signed out or not allowed any more: reload the page",
    4404: "this run is gone",
    4409: "the record was replaced: reload the page",
  };

  function socketUrl(path) {
    return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${path}`;
  }

  // options: path, cursor (null for the list socket), onEvents(events), onMessage(message), onState(word, detail)
  class LiveSocket {
    constructor(options) {
      this.options = options;
      this.cursor = options.cursor;
      this.tries = 0;
      this.lastFrame = 0;
      this.isOver = false;
      this.state = "";
      this.watch = setInterval(() => this.check(), 1000);
      addEventListener("online", () => this.hurry());
      document.addEventListener("visibilitychange", () => { if (!document.hidden) this.hurry(); });
      this.open();
    }

    say(word, detail) {
      this.state = word;
      this.options.onState(word, detail || "");
    }

    open() {
      clearTimeout(this.timer);
      this.timer = 0;
      const path = this.cursor === null ? this.options.path : `${this.options.path}?cursor=${this.cursor}`;
      if (this.tries === 0) this.say("connecting");
      const socket = new WebSocket(socketUrl(path));
      this.socket = socket;
      socket.onopen = () => {
        if (socket !== this.socket) return;
        this.lastFrame = Date.now();
        this.tries = 0;
        this.say("live");
      };
      socket.onmessage = (event) => { if (socket === this.socket) this.receive(event.data); };
      socket.onclose = (event) => { if (socket === this.socket) this.closed(event.code); };
    }

    receive(text) {
      this.lastFrame = Date.now();
      if (this.state !== "live") this.say("live");
      let message;
      try {
        message = JSON.parse(text);
      } catch (error) {
        console.error("a frame that is not JSON", error);
        return;
      }
      if (message.type === "events") this.take(message);
      this.options.onMessage?.(message);
    }

    take(message) {
      // Gapless or nothing: drawing on with a hole would show a wrong history.
      if (message.from > this.cursor + 1) {
        this.say("gap", `events ${this.cursor + 1} to ${message.from - 1} did not arrive`);
        this.reopen(1000);
        return;
      }
      const fresh = message.events.filter((event) => event.c > this.cursor);
      this.cursor = Math.max(this.cursor, message.to);
      this.socket.send(JSON.stringify({ type: "ack", to: message.to }));
      if (fresh.length) this.options.onEvents(fresh);
    }

    closed(code) {
      if (this.isOver) return;
      if (ENDINGS[code]) {
        this.isOver = true;
        clearInterval(this.watch);
        this.say("ended", ENDINGS[code]);
        return;
      }
      const wait = WAITS_MS[Math.min(this.tries, WAITS_MS.length - 1)];
      this.tries += 1;
      this.say("reconnecting", this.tries > 2 ? `try ${this.tries}` : "");
      this.timer = setTimeout(() => this.open(), wait * (0.75 + Math.random() / 2));
    }

    reopen(delayMs) {
      const old = this.socket;
      this.socket = null;
      old?.close();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.open(), delayMs);
    }

    hurry() {
      if (!this.isOver && this.timer) this.open();
    }

    check() {
      if (this.isOver || !this.socket || this.socket.readyState !== WebSocket.OPEN || this.options.isQuiet) return;
      const silent = Date.now() - this.lastFrame;
      if (silent > DEAD_MS) {
        this.tries = 1;
        this.say("reconnecting");
        this.reopen(0);
      } else if (silent > SILENT_MS && this.state !== "stale") {
        this.say("stale", new Date(this.lastFrame).toLocaleTimeString());
      }
    }
  }

  // The chip in the top bar.
  function showState(word, detail) {
    const chip = document.getElementById("live-chip");
    if (!chip) return;
    const tones = { live: "live", connecting: "wait", reconnecting: "wait", stale: "warn", gap: "warn", ended: "bad" };
    chip.className = `chip ${tones[word] || "none"}`;
    chip.dataset.state = word;
    const text = word === "stale" ? `stale since ${detail}` : word === "ended" ? detail : detail ? `${word}, ${detail}` : word;
    chip.replaceChildren();
    if (word === "live") {
      const dot = document.createElement("span");
      dot.className = "dot";
      chip.append(dot);
    }
    chip.append(text);
  }

  // Put a fresh copy of a fragment in its element's place. Not htmx.ajax: that queues all requests of a page behind one
  // element and silently drops all but the last.
  async function refetch(url, targetId) {
    try {
      const answer = await fetch(url, { headers: { "HX-Request": "true" } });
      const elsewhere = answer.headers.get("HX-Redirect");
      if (elsewhere) {
        location.assign(elsewhere);
        return;
      }
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const html = await answer.text();
      const target = document.getElementById(targetId);
      if (target) htmx.swap(target, html, { swapStyle: "outerHTML" });
    } catch (error) {
      console.warn(`${url} could not be fetched again`, error);
    }
  }

  app.refetch = refetch;
  app.LiveSocket = LiveSocket;
  app.showLiveState = showState;
})();
