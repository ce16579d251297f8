"""What a surrogate of people's own data needs beside its network: sizes, yardsticks, reports."""
