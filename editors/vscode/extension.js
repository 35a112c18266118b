// Starts the language server of this project and leaves everything else to it.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate(context) {
  const [command, ...args] = workspace.getConfiguration("csl").get("command");
  client = new LanguageClient(
    "csl",
    "CSL",
    { command, args },
    { documentSelector: [{ scheme: "file", language: "csl" }] },
  );
  context.subscriptions.push(client);
  return client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
