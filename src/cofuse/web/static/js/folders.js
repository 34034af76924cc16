// Which files become which stack: a folder is a stack, and so are files that are in none.

// Files that systems put into folders, which nobody means to send.
const CLUTTER = /^(\.|thumbs\.db$|desktop\.ini$)/i;

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/**
 * Groups of files, one a folder: `[{ name, files }]` of `[{ path, file }]`. Names are those of the
 * folders, the whole path where two are called alike, and `null` for files in no folder.
 */
export function groupsOf(found) {
  const folders = new Map();
  for (const { path, file } of found) {
    const parts = path.split("/").filter(Boolean);
    if (parts.some((part) => CLUTTER.test(part))) continue;
    const folder = parts.slice(0, -1).join("/");
    folders.set(folder, [...(folders.get(folder) ?? []), file]);
  }
  const last = (folder) => folder.split("/").at(-1);
  const all = [...folders.keys()].sort(natural.compare);
  return all.map((folder) => {
    const alike = all.filter((other) => last(other) === last(folder)).length > 1;
    const name = alike ? folder.replaceAll("/", " – ") : last(folder);
    const files = folders.get(folder).sort((a, b) => natural.compare(a.name, b.name));
    return { name: name || null, files };
  });
}

/** What the names of files have in common at their start, without a number or sign at its end. */
export function commonName(names) {
  let shared = names[0].replace(/\.[^.]*$/, "");
  for (const name of names) while (!name.startsWith(shared)) shared = shared.slice(0, -1);
  return shared.replace(/[\d\s._(-]+$/, "");
}

/** Files in requests: small enough for a lively bar, large enough not to wait at every file. */
export function batchesOf(files, mostBytes = 48e6, mostFiles = 12) {
  const batches = [];
  let size = Infinity;
  for (const file of files) {
    if (size + file.size > mostBytes || batches.at(-1).length >= mostFiles) {
      batches.push([]);
      size = 0;
    }
    batches.at(-1).push(file);
    size += file.size;
  }
  return batches;
}
