// Files and folders come in: by dropping, by choosing, or as the sample stack.

import * as api from "./api.js";
import { announce, attempt, byId, make, toast } from "./dom.js";
import { batchesOf, commonName, groupsOf } from "./folders.js";
import { dropStack, goTo, setStack, setUploading, state, updateStack } from "./state.js";
import { bytes, plural, sentence } from "./words.js";

// Groups that are sent or are to be, the first of them now: {name, files, target, from}. The target is
// the stack they go to, {id}, which groups may share while it has no id yet.
let groups = [];
let stopping = null;

/** All files below what was dropped. Entries must be taken from the event before anything is awaited. */
async function filesOf(entries) {
  const found = [];
  const visit = async (entry) => {
    if (entry.isFile) {
      found.push({ path: entry.fullPath, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
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
function refuseEarly(files, target) {
  const { limits } = state.info;
  let room = limits.frames - (state.stacks.get(target.id)?.frames.length ?? 0);
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

/** Send one group; `refuse` hears of files that are not taken. */
async function send({ name, files, target, from }, refuse) {
  const { good, refused } = refuseEarly(files, target);
  refuse(refused);
  if (good.length === 0) return;
  const made = target.id ? null : await api.createStack(name ?? commonName(good.map((file) => file.name)));
  let stack = made ?? state.stacks.get(target.id);
  target.id = stack.id;
  showUploading();
  const total = good.reduce((sum, file) => sum + file.size, 0);
  const words = `Uploading ${plural(good.length, "file")}, ${bytes(total)}, to “${stack.name}”`;
  const more = () => (groups.length > 1 ? `; then ${plural(groups.length - 1, "more stack")}` : "");
  let sent = 0;
  try {
    for (const batch of batchesOf(good)) {
      const size = batch.reduce((sum, file) => sum + file.size, 0);
      const told = (count) => showProgress(sent + Math.min(count, size), total, words + more());
      told(0);
      const answer = await api.upload(stack.id, batch, told, stopping.signal);
      sent += size;
      stack = answer.stack;
      refuse(answer.refused);
      updateStack(stack);
      // The first frames are shown, unless the person has gone elsewhere meanwhile.
      if (made && stack.frames.length && window.location.hash === from) {
        setStack(stack);
        goTo("stack", stack.id);
      }
    }
    announce(`${plural(stack.frames.length, "frame")} in the stack`);
  } finally {
    if (made && stack.frames.length === 0) await attempt(() => api.deleteStack(stack.id).then(() => dropStack(stack.id)));
  }
}

const showUploading = () => setUploading(groups.map(({ target }) => target.id));

async function sendAll() {
  if (stopping || groups.length === 0) return;
  stopping = new AbortController();
  const refused = [];
  const refuse = (more) => {
    refused.push(...more);
    showRefused(refused);
  };
  while (groups.length) {
    showUploading();
    try {
      await send(groups[0], refuse);
    } catch (error) {
      refuse([{ name: "Upload", error: sentence(error.message) }]);
    }
    if (stopping.signal.aborted) groups = [];
    groups.shift();
  }
  stopping = null;
  showProgress(0, 0, "");
  showUploading();
}

/** A folder becomes a stack; files in none are added to the stack that is shown, or make one. */
function add(found) {
  if (state.jobId) {
    setStack(null);
    goTo("new");
  }
  const from = window.location.hash;
  const loose = groups.find(({ name, target }) => name === null && target.id === null)?.target;
  const fresh = groupsOf(found);
  if (fresh.length > 1) toast(`${fresh.length} folders become ${fresh.length} stacks, in the strip below`);
  for (const { name, files } of fresh) {
    const target = name === null && (state.stack ? { id: state.stack.id } : loose);
    groups.push({ name, files, target: target || { id: null }, from });
  }
  sendAll();
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

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");

function showTarget(shown) {
  byId("target").hidden = !shown;
  if (!shown) return;
  const stack = state.jobId ? null : state.stack;
  byId("target-words").textContent = stack
    ? `Pictures are added to “${stack.name}”. A folder becomes a stack of its own.`
    : "A new stack of these pictures. A folder becomes a stack of its own.";
}

async function take(event) {
  showTarget(false);
  if (!carriesFiles(event)) return;
  event.preventDefault();
  const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry?.());
  const plain = [...event.dataTransfer.files].map((file) => ({ path: file.name, file }));
  const found = entries.every(Boolean) && entries.length ? await attempt(() => filesOf(entries)) : plain;
  if (!found) return;
  for (const { isDirectory, name, fullPath } of entries.filter(Boolean)) {
    if (isDirectory && groupsOf(found.filter(({ path }) => path.startsWith(`${fullPath}/`))).length === 0) toast(`The folder “${name}” holds no pictures`);
  }
  add(found);
}

export function startUpload() {
  byId("most").textContent = `Up to ${state.info.limits.frames} in a stack.`;
  window.addEventListener("beforeunload", (event) => stopping && event.preventDefault());
  // The whole window takes files, so that a near miss does not open the picture instead of the page.
  window.addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    showTarget(true);
  });
  window.addEventListener("dragleave", (event) => !event.relatedTarget && showTarget(false));
  window.addEventListener("drop", take);
  for (const [button, input] of [["choose-files", "file-input"], ["choose-folder", "folder-input"]]) {
    byId(button).addEventListener("click", () => byId(input).click());
    byId(input).addEventListener("change", () => {
      const found = [...byId(input).files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
      byId(input).value = ""; // so that the same files can be chosen again
      if (groupsOf(found).length === 0) toast("There are no pictures in that folder");
      add(found);
    });
  }
  byId("try-sample").addEventListener("click", takeSample);
  byId("upload-stop").addEventListener("click", () => stopping?.abort());
  byId("refused-close").addEventListener("click", () => showRefused([]));
}
