// Light or dark: as the system says, until the person says otherwise.

import { byId } from "./dom.js";
import { recall, remember } from "./state.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function show() {
  const theme = recall("theme", null) ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
}

export function startTheme() {
  show();
  dark.addEventListener("change", show);
  byId("theme-button").addEventListener("click", () => {
    remember("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    show();
  });
}
