// Notices for the user: unknown words, the place in the queue, errors.
const box = element.querySelector(".ft-notices");

// Button that replaces an unknown word of the prompt with a known one.
function replacement(word, known) {
  const take = () => {
    const text = promptField("prompt").value, at = text.toLowerCase().indexOf(word);
    writePrompt("prompt", at < 0 ? `${text} ${known}` : text.slice(0, at) + known + text.slice(at + word.length));
  };
  return node("button", known, { type: "button", className: "ft-instead", onclick: take });
}

// Undoes the correction of a misspelled word; the server reads the prompt again.
function undo(word) {
  const leave = () => {
    props.value = props.value.map((notice) => ({ ...notice, kept: [...(notice.kept || []), word] }));
    trigger("input");
  };
  return node("button", "Undo", { type: "button", className: "ft-instead", ariaLabel: `Undo: leave ${word} as it is`, onclick: leave });
}

function draw() {
  const items = (props.value || []).map((notice) => {
    const line = node("p", notice.text);
    line.dataset.kind = notice.kind;
    for (const [word, right] of Object.entries(notice.corrected || {})) line.append(` ${word} is read as ${right}. `, undo(word));
    const words = Object.entries(notice.instead || {});
    for (const [word, near] of words) {
      line.append(words.length > 1 ? ` For ${word}, try: ` : " Try: ", ...near.map((known) => replacement(word, known)));
    }
    return line;
  });
  box.replaceChildren(...items);
  if ((props.value || []).every((notice) => "nothing" in notice)) emit("nothing-known", (props.value || []).some((notice) => notice.nothing), scope);
}

watch("value", draw);
draw();
