// A file of a run dropped anywhere on the page restores its settings; it is read in the browser and not uploaded. Any other cloud or
// mesh goes to the Mesh tab, which uploads it.
const ZONE = ".ft-drop"; // accepts files itself
const SHAPES = [".ply", ".obj", ".glb", ".gltf", ".stl", ".off", ".xyz", ".txt", ".csv", ".asc", ".pts", ".xyzn", ".xyzrgb", ".npy", ".npz", ".pcd"]; // possible clouds or meshes

const pngText = (view) => { // text chunk "foretoken" of a PNG
  const latin = new TextDecoder("latin1"), utf = new TextDecoder();
  for (let at = 8; at + 12 <= view.byteLength;) {
    const size = view.getUint32(at), kind = latin.decode(new Uint8Array(view.buffer, at + 4, 4));
    if (at + 12 + size > view.byteLength) return null;
    const data = new Uint8Array(view.buffer, at + 8, size), end = data.indexOf(0);
    if (["tEXt", "iTXt"].includes(kind) && latin.decode(data.subarray(0, end)) === "foretoken") {
      if (kind === "tEXt") return latin.decode(data.subarray(end + 1));
      const language = data.indexOf(0, end + 3), translated = data.indexOf(0, language + 1);
      return data[end + 1] ? null : utf.decode(data.subarray(translated + 1));
    }
    at += 12 + size;
  }
  return null;
};

// Finds the settings object anywhere in a GLB's JSON.
function within(value, depth = 0) {
  if (typeof value !== "object" || value === null || depth > 8) return null;
  if (typeof value.method === "string" && typeof value.knobs === "object") return value;
  for (const each of Object.values(value)) {
    const found = within(each, depth + 1);
    if (found) return found;
  }
  return null;
}

const pageText = (text) => text.match(/<script type="application\/json" id="foretoken-settings">(.*?)<\/script>/s)?.[1]; // from an HTML replay

async function settingsIn(file) {
  const buffer = await file.slice(0, 64 * 2 ** 20).arrayBuffer(), view = new DataView(buffer);
  const magic = buffer.byteLength > 20 ? view.getUint32(0) : 0;
  if (magic === 0x89504e47) return JSON.parse(pngText(view) || "null");
  if (magic === 0x676c5446) return within(JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 20, view.getUint32(12, true)))));
  const text = new TextDecoder().decode(buffer);
  return within(JSON.parse(pageText(text) || text));
}

async function namesIn(folder) { // browsers list a folder in batches
  const reader = folder.createReader(), all = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return all;
    all.push(...some);
  }
}

async function fileOf(item) {
  const entry = item.webkitGetAsEntry?.();
  if (!entry?.isDirectory) return item.getAsFile();
  const found = (await namesIn(entry)).find((each) => each.name === "run.json");
  return found ? new Promise((done, fail) => found.file(done, fail)) : null;
}

const until = (find) => new Promise((done) => {
  const look = () => { const found = find(); if (found) done(found); else setTimeout(look, 50); };
  look();
});

async function openShape(file) {
  tabsOf().find((tab) => tab.textContent.trim() === "Mesh").click();
  await until(() => document.querySelector("#mesh-notes")?.textContent.trim()); // after the tab has loaded its first example
  const input = await until(() => document.querySelector("#mesh-file input[type=file]")), carried = new DataTransfer();
  carried.items.add(file);
  input.files = carried.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

const carries = (event) => [...(event.dataTransfer?.types || [])].includes("Files") && !event.target.closest?.(ZONE);
document.addEventListener("dragover", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  document.body.classList.add("ft-dropping");
});
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("ft-dropping"); });
document.addEventListener("drop", async (event) => {
  document.body.classList.remove("ft-dropping");
  if (!carries(event)) return;
  event.preventDefault();
  let settings = null, file = null;
  try {
    file = await fileOf(event.dataTransfer.items[0]);
    settings = file && (await settingsIn(file));
  } catch { /* not a file of a run: the server reports it */ }
  if (!settings && SHAPES.some((ending) => file?.name.toLowerCase().endsWith(ending))) return openShape(file);
  askFor(settings || {});
});
