// Starts the foreign mock on a free port of this machine and prints the port. Ends when its standard input closes, so
// that no server outlives the test run that started it.
"use strict";

const { createRequire } = require("module");
const { createExpressApp } = createRequire(`${process.cwd()}/`)("stripe-stateful-mock");

const server = createExpressApp().listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
