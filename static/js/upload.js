// Uploading a corpus: progress, cancel, and a refusal before anything is sent. The form works without this file.
(function () {
  "use strict";
  const form = document.getElementById("upload-form");
  if (!form) return;
  const send = form.querySelector("[data-upload]");
  const cancel = form.querySelector("[data-cancel]");
  const progress = form.querySelector("[data-progress]");
  const bar = progress.querySelector("progress");
  const said = form.querySelector("[data-said]");
  const problem = document.getElementById("corpus-problem");
  const limit = Number(form.dataset.limit);
  let request = null;

  const mib = (bytes) => `${(bytes / 1048576).toFixed(1)} MiB`;

  function show(text) {
    problem.hidden = !text;
    problem.querySelector("[data-problem]").textContent = text;
    if (text) problem.scrollIntoView({ block: "nearest" });
  }

  function finish() {
    request = null;
    send.disabled = false;
    cancel.hidden = true;
    progress.hidden = true;
  }

  function answered() {
    let answer = {};
    try { answer = JSON.parse(request.responseText); } catch { /* an error page of the server */ }
    if (request.status === 200 && answer.url) { location.assign(answer.url); return; }
    const words = { 413: "The upload is larger than the limit set by the admin.", 403: "The page is out of date or you may not upload; load it again." };
    show(answer.detail || words[request.status] || `The server answered with ${request.status}; try again.`);
    finish();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (request) return;
    const files = [...form.elements.files.files];
    const total = files.reduce((sum, file) => sum + file.size, 0);
    if (total > limit) { show(`The files hold ${mib(total)}; the limit is ${mib(limit)}.`); return; }
    show("");
    request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("X-CSRFToken", form.elements.csrfmiddlewaretoken.value);
    request.upload.addEventListener("progress", (at) => {
      bar.value = at.total ? (100 * at.loaded) / at.total : 0;
      said.textContent = at.loaded < at.total ? `${mib(at.loaded)} of ${mib(at.total)}` : "Arrived; being kept …";
    });
    request.addEventListener("load", answered);
    request.addEventListener("error", () => { show("The connection broke. Nothing was kept; try again."); finish(); });
    request.addEventListener("abort", () => { show("Cancelled. Nothing was kept."); finish(); });
    send.disabled = true;
    cancel.hidden = false;
    progress.hidden = false;
    request.send(new FormData(form));
  });
  cancel.addEventListener("click", () => request?.abort());
})();
