// Table of the finished meshes. Draws values from app/ui/tabs/quality_table.py; null: nothing is finished.
const box = element.querySelector(".ft-quality-box"), table = box.querySelector("table"), notes = box.querySelector(".ft-spent");
let shown = null, late = null; // late : the table of a race with the columns of its downloads, which come after it
const isSame = (one, other) => String(one?.notes) === String(other?.notes);

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
  if (props.value?.late) late = props.value;
  if (props.value?.late && !isSame(late, shown)) return; // its race is not shown now
  const v = late && isSame(late, props.value) ? late : props.value;
  shown = v;
  box.hidden = !v;
  if (!v) return;
  table.querySelector("thead").replaceChildren(head(v));
  table.querySelector("tbody").replaceChildren(...v.rows.map(line));
  notes.replaceChildren(...v.notes.map((text) => node("p", text)));
}

watch("value", draw);
draw();
