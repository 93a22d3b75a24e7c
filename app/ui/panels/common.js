// Included before every panel's script. The value comes from Gradio or from a "foretoken:show" event, whichever is newer.
const gradio = { props, watch };
let override;
props = new Proxy(gradio.props, {
  get: (given, name) => (name === "value" && override !== undefined ? override : given[name]),
  set: (given, name, value) => { if (name === "value") override = undefined; given[name] = value; return true; },
});
const redraws = [];
watch = (name, draw) => {
  if (name === "value") redraws.push(draw);
  gradio.watch(name, () => { override = undefined; draw(); });
};
window.addEventListener("foretoken:show", (event) => {
  if (event.detail.panel !== __OWN__) return;
  override = event.detail.value;
  redraws.forEach((draw) => draw());
});

// Events between the panels of a tab, or of a race of several runs, use this element; events of the page use the window.
const scope = element.closest(".ft-lanes, [role=tabpanel]") || window;
const emit = (name, detail, to = window) => to.dispatchEvent(new CustomEvent(`foretoken:${name}`, { detail }));
// What a visitor has chosen in this panel, kept in their browser; a replay file, which has no server, keeps nothing.
const store = window.gradio_config ? localStorage : {};
const recall = (usual) => ({ ...usual, ...JSON.parse(store[`foretoken-${__OWN__}`] || "{}") });
const remember = (chosen) => { store[`foretoken-${__OWN__}`] = JSON.stringify(chosen); };
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
// Bitmap of a picture in a data: URL.
const bitmapOf = (address) => createImageBitmap(new Blob([bytes(address.split(",")[1])], { type: address.slice(5).split(";")[0] }));
const node = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);

function swatch(colour, text, kind = "") { // entry of a legend
  const item = node("span"), mark = node("i", "", { className: kind });
  mark.style.setProperty("--mark", colour);
  item.append(mark, text);
  return item;
}

function drawBadge(mark, badge) {
  mark.hidden = !badge;
  if (!badge) return;
  Object.assign(mark.dataset, { exact: badge.exact, tip: badge.why });
  mark.textContent = badge.exact ? "exact" : "not exact";
  mark.setAttribute("aria-label", badge.why);
}

function save(blob, name) {
  const link = node("a", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const inert = (cell) => (/^[=+@\t\r]/.test(cell) ? `'${cell}` : cell); // keeps spreadsheets from reading text as a formula
const csvLine = (row) => row.map((cell) => quoted(typeof cell === "number" ? String(cell) : inert(cell ?? ""))).join(",");
