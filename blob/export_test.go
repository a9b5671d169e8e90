package blob

// Corrupt replaces the stored bytes behind d without renaming them.
func (m *memory) Corrupt(d Digest, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[d] = data
	return nil
}

// Len returns the number of blobs held.
func (m *memory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.blobs)
}
