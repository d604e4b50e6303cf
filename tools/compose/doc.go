// Package compose checks the Compose project in deploy/compose with Compose's own
// parser, and with Docker Compose 1.29 where that is installed. It is a module of
// its own, so that the product's graph does not hold Compose.
package compose
