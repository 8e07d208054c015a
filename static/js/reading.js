// A transcript: switching between raw and rendered stays at the turn that is being read.
(function () {
  "use strict";
  function topTurn() {
    const bar = document.querySelector(".topbar")?.getBoundingClientRect().bottom || 0;
    for (const turn of document.querySelectorAll(".transcript .turn[id]")) if (turn.getBoundingClientRect().bottom > bar + 40) return turn;
    return null;
  }
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-keep-place]") : null;
    if (!link || window.scrollY < 200) return;
    const turn = topTurn();
    const number = /^t(\d+)$/.exec(turn?.id || "")?.[1];
    if (!number) return;
    const url = new URL(link.href);
    url.searchParams.set("turn", number);
    url.hash = turn.id;
    link.href = url.href;
  });
})();
