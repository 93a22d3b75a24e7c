// Sets the prompt as if typed, so that Gradio notices and looks up its words.
function promptField(id) {
  return document.querySelector(`#${id} textarea, #${id} input`);
}

function writePrompt(id, text) {
  const field = promptField(id);
  if (!field || field.disabled) return;
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
