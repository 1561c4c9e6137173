// Not a module: it runs before the first paint, so that a chosen theme never flashes the other one.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("hanzo.theme");
  } catch {
    // Storage is forbidden: the system's preference holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
