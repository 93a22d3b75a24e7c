// Notices for the user: unknown words, the place in the queue, errors and what to do about them.
const box = element.querySelector(".ft-notices");

// A known word that takes the place of an unknown one in the prompt.
function replacement(word, known) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "ft-instead";
  made.textContent = known;
  made.addEventListener("click", () => {
    const text = promptField("prompt").value, at = text.toLowerCase().indexOf(word);
    writePrompt("prompt", at < 0 ? `${text} ${known}` : text.slice(0, at) + known + text.slice(at + word.length));
  });
  return made;
}

function draw() {
  const items = (props.value || []).map((notice) => {
    const line = document.createElement("p");
    line.dataset.kind = notice.kind;
    line.textContent = notice.text;
    for (const [word, near] of Object.entries(notice.instead || {})) {
      line.append(` Instead of ${word}: `, ...near.map((known) => replacement(word, known)));
    }
    return line;
  });
  box.replaceChildren(...items);
}

watch("value", draw);
draw();
