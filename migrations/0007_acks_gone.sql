-- Acknowledgements are kept by the bus; nothing has ever written or read this.
DROP TABLE acks;
