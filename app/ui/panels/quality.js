// Table of the finished meshes. Draws values from app/ui/tabs/quality_table.py; null: nothing is finished.
const box = element.querySelector(".ft-quality-box"), table = box.querySelector("table"), notes = box.querySelector(".ft-spent");
let shown = null;

function head(v) {
  const row = node("tr", "");
  row.append(node("td", ""));
  for (const { title, side } of v.heads) {
    const cell = node("th", title, { scope: "col" }), dot = node("i", "", { className: "ft-dot" });
    dot.dataset.side = side;
    cell.prepend(dot);
    row.append(cell);
  }
  row.append(node("th", "Floor", { scope: "col", className: "ft-floor" }));
  return row;
}

function line({ label, help, cells, floor }) {
  const row = node("tr", "");
  row.append(node("th", label, { scope: "row", title: help }));
  for (const { text, good } of cells) {
    const cell = node("td", good === null ? text : "");
    if (good !== null) {
      const chip = node("span", text, { className: "ft-verdict-chip" });
      chip.dataset.good = good;
      cell.append(chip);
    }
    row.append(cell);
  }
  row.append(node("td", floor, { className: "ft-floor" }));
  return row;
}

function draw() {
  const v = props.value;
  if (v?.late && String(v.notes) !== String(shown?.notes)) return; // columns for a race that is no longer shown
  shown = v;
  box.hidden = !v;
  if (!v) return;
  table.querySelector("thead").replaceChildren(head(v));
  table.querySelector("tbody").replaceChildren(...v.rows.map(line));
  notes.replaceChildren(...v.notes.map((text) => node("p", text)));
}

watch("value", draw);
draw();
