// Runs before the first paint: sets the theme this browser or this user chose, so that nothing flashes.
(function () {
  "use strict";
  const root = document.documentElement;
  let choice = root.dataset.themeChoice || "";
  if (!choice) {
    try {
      choice = localStorage.getItem("spadework.theme") || "";
    } catch (blocked) {
      choice = ""; // storage is off in this browser: follow the system
    }
  }
  if (choice === "light" || choice === "dark") root.dataset.theme = choice;
})();
