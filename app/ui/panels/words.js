// Words that a model can draw. A click adds a word to the prompt: an object continues after a number, size or relation, else it starts over.
const GROUPS = __GROUPS__;
const PROMPT = __PROMPT__;
const drawer = element.querySelector(".ft-words-drawer"), place = drawer.querySelector(".ft-word-groups");
const search = drawer.querySelector("input");
const written = (kind) => GROUPS.filter((group) => group.kind === kind).flatMap((group) => group.items.map((item) => item.written));
const counts = written("count"), sizes = written("size"), relations = [...written("relation"), "and", "with"];
const ends = (text, words) => words.some((word) => text === word || text.endsWith(` ${word}`));

function continuePrompt(text, kind, item) {
  const before = text.trimEnd();
  if (kind === "place") return before + item.written;
  if (kind === "relation") return before ? `${before} ${item.written}` : before;
  const open = ends(before, relations) || ends(before, counts) || ends(before, sizes) || /\b(a|an|the)$/.test(before);
  if (kind !== "object") return open && before ? `${before} ${item.written}` : item.written;
  if (!open) return `${item.article} ${item.written}`;
  const bare = ends(before, sizes) ? before.replace(/\s*\S+$/, "") : before; // "two small" needs a plural too
  if (ends(bare, counts)) return `${before} ${item.plural}`;
  return ends(before, relations) ? `${before} ${item.article} ${item.written}` : `${before} ${item.written}`;
}

function button(kind, item) {
  return node("button", item.shown, { type: "button", onclick: () => writePrompt(PROMPT, continuePrompt(promptField(PROMPT).value, kind, item)) });
}

for (const group of GROUPS) {
  const section = node("section");
  section.append(node("h4", group.name), ...group.items.map((item) => button(group.kind, item)));
  place.append(section);
}

function find() {
  const wanted = search.value.trim().toLowerCase();
  for (const section of place.children) {
    const buttons = [...section.querySelectorAll("button")];
    for (const each of buttons) each.hidden = !each.textContent.toLowerCase().includes(wanted);
    section.hidden = buttons.every((each) => each.hidden);
  }
}

search.addEventListener("input", find);
drawer.querySelector("[data-do=close]").addEventListener("click", () => emit("close-words", null, scope));
scope.addEventListener("foretoken:words", ({ detail }) => {
  drawer.hidden = !detail;
  if (detail === true) search.focus(); // else the visitor is still typing the prompt
});
