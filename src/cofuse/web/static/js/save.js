// Taking the result home: the picture in every format, the report, the command line.

import * as api from "./api.js";
import { output, withOutput } from "./controls.js";
import { byId, copyText, make } from "./dom.js";
import { goTo, currentJob } from "./state.js";
import { removeJob } from "./progress.js";

const CHOICES = [["tiff", 16], ["tiff", 8], ["png", 16], ["png", 8], ["jpeg", 8]];

const words = (format, depth) => `${format.toUpperCase()}${format === "jpeg" ? "" : `, ${depth} bit`}`;

export function showSave(job) {
  const [format, asked] = output();
  const depth = asked || (format === "jpeg" ? 8 : job.result.depth);
  const main = byId("download-main");
  main.href = api.downloadUrl(job.id, format, asked);
  main.querySelector("span").textContent = `Download ${words(format, depth)}`;
  byId("downloads").replaceChildren(
    ...CHOICES.map(([kind, bits]) =>
      make("li", {}, make("a", { href: api.downloadUrl(job.id, kind, bits), download: true, "data-format": `${kind}-${bits}`, text: words(kind, bits) })),
    ),
  );
  byId("report-html").href = api.reportUrl(job.id, "html");
  byId("report-json").href = api.reportUrl(job.id, "json");
  byId("job-command").textContent = withOutput(job.command ?? "");
}

export function startSave() {
  byId("job-command-copy").addEventListener("click", () => copyText(byId("job-command").textContent));
  byId("to-frames").addEventListener("click", () => goTo("stack", currentJob().stack));
  byId("delete-job").addEventListener("click", () => {
    const job = currentJob();
    if (window.confirm(`Delete the result “${job.name}”? Its picture is gone then.`)) removeJob(job);
  });
}
