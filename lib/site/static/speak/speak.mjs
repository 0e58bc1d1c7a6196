// The page's side: what is typed goes to the worker, what it writes comes back.
const part = (id) => document.getElementById(id);
let worker = null;

function say(sentence) {
  part("state").textContent = sentence;
}

function busy(writing) {
  part("write").disabled = writing;
  part("stop").disabled = !writing;
}

const heard = {
  state: ({ sentence }) => say(sentence),
  fetched: ({ share, sentence }) => {
    part("progress").hidden = share >= 1;
    part("progress").value = share;
    say(sentence);
  },
  piece: ({ text }) => part("text").append(text),
  done: ({ sentence }) => {
    say(sentence);
    busy(false);
  },
};

function begin() {
  worker = new Worker("worker.mjs", { type: "module" });
  worker.onmessage = ({ data }) => heard[data.kind](data);
  worker.onerror = (event) => {
    event.preventDefault();
    worker = null; // the next click begins anew
    say(`Python could not be started in this page: ${event.message || "it could not be fetched"}.`);
    busy(false);
  };
}

document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const prompt = part("prompt").value;
  if (!worker) begin();
  busy(true);
  const given = document.createElement("b");
  given.textContent = prompt;
  part("text").replaceChildren(given);
  worker.postMessage({ prompt });
});

part("stop").addEventListener("click", () => worker.postMessage({ stop: true }));
