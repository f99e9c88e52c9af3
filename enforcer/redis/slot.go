package redis

// slots is how many a Cluster has.
const slots = 16384

// slot is the one of a key without braces: CRC-16/XMODEM, as the Cluster's
// specification has it.
func slot(key string) uint16 {
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}
