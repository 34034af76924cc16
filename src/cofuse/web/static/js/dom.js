// Small words for making and finding elements, and for speaking to the person.

import { sentence } from "./words.js";

export const byId = (id) => document.getElementById(id);

/** An element: `make("li", {class: "frame", text: "one"}, child, ...)`; `on...` are listeners. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const icon = (name) =>
  draw("svg", { class: "icon", "aria-hidden": "true" }, draw("use", { href: `#i-${name}` }));

export function iconButton(name, label, onclick, extra = {}) {
  return make("button", { class: "icon-button", type: "button", "aria-label": label, title: label, onclick, ...extra }, icon(name));
}

/** A line of a table of facts; both are text or an element. */
export const factRow = (name, value) =>
  make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value));

/** Replace the options of a select by [value, words] pairs, keeping the choice where it still exists. */
export function fillSelect(select, pairs, chosen = select.value) {
  select.replaceChildren(...pairs.map(([value, words]) => make("option", { value, text: words })));
  if (pairs.some(([value]) => String(value) === String(chosen))) select.value = chosen;
}

/** Say something short that goes away by itself. */
export function toast(words) {
  const note = make("p", { class: "toast", text: words });
  byId("toasts").append(note);
  setTimeout(() => note.remove(), 5000);
}

/** Tell those who cannot see the picture. */
export function announce(words) {
  const live = byId("live");
  if (live.textContent !== words) live.textContent = words;
}

/** Run what may be refused; a refusal becomes a toast, and `undefined` comes back. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    toast(sentence(error.message));
    return undefined;
  }
}

/** `action` at most once in `milliseconds`, with the last arguments. */
export function eventually(action, milliseconds) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

export async function copyText(words) {
  try {
    await navigator.clipboard.writeText(words);
    toast("Copied");
  } catch {
    toast("The browser does not allow copying; select the line instead");
  }
}
