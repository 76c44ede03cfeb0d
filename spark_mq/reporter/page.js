"use strict";
function say(text) { document.getElementById("said").textContent = text; }
function sort(header) {
  const table = header.closest("table"), column = header.cellIndex, body = table.tBodies[0];
  const first = header.classList.contains("number") ? "descending" : "ascending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = header.getAttribute("aria-sort") === first ? other : first;
  const sign = order === "ascending" ? 1 : -1;
  const key = (row) => {
    const cell = row.cells[column];
    return header.classList.contains("number") ? (cell.dataset.sort === "" ? NaN : Number(cell.dataset.sort)) : cell.textContent;
  };
  const compare = (a, b) => {
    const x = key(a), y = key(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
  };
  body.append(...[...body.rows].sort(compare));
  for (const one of table.tHead.rows[0].cells) one.setAttribute("aria-sort", one === header ? order : "none");
  say("sorted by " + header.textContent + ", " + order);
}
async function copy(button) {
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(code.textContent);
    say("copied");
    button.textContent = "Copied";
  } catch (error) {
    getSelection().selectAllChildren(code);
    say("selected: press Ctrl-C");
    button.textContent = "Selected";
  }
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button && button.classList.contains("copy")) copy(button);
  else if (button) sort(button.closest("th"));
});
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
