"""What commands show: tables, pictures, sentences. Shell."""
