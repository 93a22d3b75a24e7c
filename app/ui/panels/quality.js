// The table of the finished meshes. Draws the value that app/ui/tabs/quality_table.py encodes; null: nothing is finished.
const box = element.querySelector(".ft-quality-box"), table = box.querySelector("table"), notes = box.querySelector(".ft-spent");

function made(tag, text, given = {}) {
  return Object.assign(document.createElement(tag), { textContent: text }, given);
}

function head(v) {
  const row = made("tr", "");
  row.append(made("td", ""));
  for (const { title, side } of v.heads) {
    const cell = made("th", title, { scope: "col" }), dot = made("i", "", { className: "ft-dot" });
    dot.dataset.side = side;
    cell.prepend(dot);
    row.append(cell);
  }
  row.append(made("th", "Floor", { scope: "col", className: "ft-floor" }));
  return row;
}

function line({ label, help, cells, floor }) {
  const row = made("tr", "");
  row.append(made("th", label, { scope: "row", title: help }));
  for (const { text, good } of cells) {
    const cell = made("td", good === null ? text : "");
    if (good !== null) {
      const chip = made("span", text, { className: "ft-verdict-chip" });
      chip.dataset.good = good;
      cell.append(chip);
    }
    row.append(cell);
  }
  row.append(made("td", floor, { className: "ft-floor" }));
  return row;
}

function draw() {
  const v = props.value;
  box.hidden = !v;
  if (!v) return;
  table.querySelector("thead").replaceChildren(head(v));
  table.querySelector("tbody").replaceChildren(...v.rows.map(line));
  notes.replaceChildren(...v.notes.map((text) => made("p", text)));
}

watch("value", draw);
draw();
