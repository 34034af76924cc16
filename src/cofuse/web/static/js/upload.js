// Files and folders come in: by dropping, by choosing, or as the sample stack.

import * as api from "./api.js";
import { announce, attempt, byId, make } from "./dom.js";
import { goTo, setStack, state } from "./state.js";
import { bytes, capital, plural } from "./words.js";

// Files that systems put into folders, which nobody means to send.
const CLUTTER = /^(\.|thumbs\.db$|desktop\.ini$)/i;
// One request carries so much: small enough for a lively bar, large enough not to wait at every file.
const BATCH_BYTES = 48e6;
const BATCH_FILES = 12;

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
let stopping = null;

/** All files below what was dropped. Entries must be taken from the event before anything is awaited. */
async function filesOf(entries) {
  const found = [];
  const visit = async (entry) => {
    if (CLUTTER.test(entry.name)) return;
    if (entry.isFile) {
      found.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
      return;
    }
    const reader = entry.createReader();
    // A reader gives a hundred entries at a time, and none at the end.
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (some.length === 0) return;
      for (const child of some) await visit(child);
    }
  };
  for (const entry of entries) await visit(entry);
  return found;
}

function batches(files) {
  const all = [];
  let batch = [];
  let size = 0;
  for (const file of files) {
    if (batch.length && (batch.length >= BATCH_FILES || size + file.size > BATCH_BYTES)) {
      all.push(batch);
      batch = [];
      size = 0;
    }
    batch.push(file);
    size += file.size;
  }
  if (batch.length) all.push(batch);
  return all;
}

function showRefused(refused) {
  byId("refused").hidden = refused.length === 0;
  byId("refused-words").textContent = `${plural(refused.length, "file")} not taken`;
  byId("refused-list").replaceChildren(
    ...refused.map(({ name, error }) => {
      // The server's lines often begin with the name, which is not needed twice.
      const words = error.startsWith(`${name} `) ? error.slice(name.length) : `: ${error}`;
      return make("li", {}, make("b", { text: name }), words);
    }),
  );
}

function showProgress(sent, total, words) {
  byId("upload").hidden = total === 0;
  byId("upload-bar").value = total ? Math.min(1, sent / total) : 0;
  byId("upload-words").textContent = words;
}

/** What can be said without sending the file. */
function refuseEarly(files) {
  const { limits } = state.info;
  let room = limits.frames - (state.stack?.frames.length ?? 0);
  const good = [];
  const refused = [];
  for (const file of files) {
    if (file.size > limits.bytes) {
      refused.push({ name: file.name, error: `${bytes(file.size)}, more than the ${bytes(limits.bytes)} this server takes` });
    } else if (file.size === 0) refused.push({ name: file.name, error: "the file is empty" });
    else if (room-- <= 0) refused.push({ name: file.name, error: `more than ${limits.frames} frames` });
    else good.push(file);
  }
  return { good, refused };
}

/** What the names of files have in common at their start, without a number or sign at its end. */
function commonName(files) {
  let shared = files[0].name.replace(/\.[^.]*$/, "");
  for (const { name } of files) while (!name.startsWith(shared)) shared = shared.slice(0, -1);
  return shared.replace(/[\d\s._(-]+$/, "");
}

async function addFiles(files, name) {
  if (stopping || files.length === 0) return;
  const wanted = files.filter((file) => !CLUTTER.test(file.name)).sort((a, b) => natural.compare(a.name, b.name));
  const { good, refused } = refuseEarly(wanted);
  showRefused(refused);
  if (good.length === 0) return;
  stopping = new AbortController();
  const total = good.reduce((sum, file) => sum + file.size, 0);
  let sent = 0;
  try {
    const stack = state.stack ?? (await api.createStack(name || commonName(good)));
    for (const batch of batches(good)) {
      const size = batch.reduce((sum, file) => sum + file.size, 0);
      const told = (count) =>
        showProgress(sent + Math.min(count, size), total, `Uploading ${plural(good.length, "file")}, ${bytes(total)}`);
      told(0);
      const answer = await api.upload(stack.id, batch, told, stopping.signal);
      sent += size;
      refused.push(...answer.refused);
      showRefused(refused);
      setStack(answer.stack);
    }
    if (!state.stack) setStack(await api.stack(stack.id));
    // A stack without a single frame is not worth an address.
    if (state.stack.frames.length) goTo("stack", stack.id);
    announce(`${plural(state.stack.frames.length, "frame")} in the stack`);
  } catch (error) {
    showRefused([...refused, { name: "Upload", error: capital(error.message) }]);
  } finally {
    stopping = null;
    showProgress(0, 0, "");
  }
}

async function takeSample() {
  const button = byId("try-sample");
  button.disabled = true;
  const stack = await attempt(() => api.sampleStack());
  button.disabled = false;
  if (!stack) return;
  showRefused([]);
  setStack(stack);
  goTo("stack", stack.id);
}

export function startUpload() {
  window.addEventListener("beforeunload", (event) => stopping && event.preventDefault());
  const drop = byId("drop");
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  // The whole window takes files, so that a near miss does not open the picture instead of the page.
  window.addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    drop.classList.add("over");
  });
  window.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.classList.remove("over");
  });
  window.addEventListener("drop", async (event) => {
    drop.classList.remove("over");
    if (!carriesFiles(event)) return;
    event.preventDefault();
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const entries = items.map((item) => item.webkitGetAsEntry?.());
    const plain = [...event.dataTransfer.files];
    const files = entries.every(Boolean) && entries.length ? await attempt(() => filesOf(entries)) : plain;
    if (state.jobId) {
      setStack(null);
      goTo("new");
    }
    if (files) await addFiles(files, entries.find((entry) => entry?.isDirectory)?.name);
  });
  for (const [button, input] of [["choose-files", "file-input"], ["choose-folder", "folder-input"]]) {
    byId(button).addEventListener("click", () => byId(input).click());
    byId(input).addEventListener("change", async () => {
      const files = [...byId(input).files];
      const folder = files[0]?.webkitRelativePath?.split("/")[0];
      byId(input).value = ""; // so that the same files can be chosen again
      await addFiles(files, folder || undefined);
    });
  }
  byId("try-sample").addEventListener("click", takeSample);
  byId("upload-stop").addEventListener("click", () => stopping?.abort());
  byId("refused-close").addEventListener("click", () => showRefused([]));
}
