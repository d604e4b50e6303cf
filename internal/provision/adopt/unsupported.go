package adopt

// Unsupported is why a host with this flag cannot change its role, empty where the flag
// is in no way of it.
func Unsupported(key string) string { return refused[key] }
