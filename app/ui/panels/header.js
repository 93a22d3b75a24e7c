// The page is dark unless this browser was told otherwise.
const button = element.querySelector(".ft-theme");
element.querySelector(".ft-loaded").textContent = props.value.loaded;

function put(dark) {
  document.body.classList.toggle("dark", dark);
  document.documentElement.style.background = "";
  button.textContent = dark ? "Light" : "Dark";
}

button.addEventListener("click", () => {
  const dark = !document.body.classList.contains("dark");
  localStorage.setItem("foretoken-theme", dark ? "dark" : "light");
  put(dark);
});
put(localStorage.getItem("foretoken-theme") !== "light");
