// Package docs holds the project's pages, and the tests that hold the pages
// against the tree: links lead somewhere, the interface page lists what
// internal/fleet fixes, each safety rule names tests that exist.
package docs
