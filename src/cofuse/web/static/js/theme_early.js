// Before anything is drawn, so that a dark page never flashes white: hence no module, and first of all.
// theme.js has the rest.
{
  let theme = null;
  try {
    theme = JSON.parse(window.localStorage.getItem("cofuse.theme"));
  } catch {
    /* storage is forbidden: follow the system */
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = theme ?? (dark ? "dark" : "light");
}
