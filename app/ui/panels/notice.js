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

function draw() {
  const items = (props.value || []).map((notice) => {
    const line = node("p", notice.text);
    line.dataset.kind = notice.kind;
    const words = Object.entries(notice.instead || {});
    for (const [word, near] of words) {
      line.append(words.length > 1 ? ` For ${word}, try: ` : " Try: ", ...near.map((known) => replacement(word, known)));
    }
    return line;
  });
  box.replaceChildren(...items);
}

watch("value", draw);
draw();
